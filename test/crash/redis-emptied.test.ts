import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { mostAtOnce } from '../support/journal.ts'
import { useRedis } from '../support/own-redis.ts'
import { counter, eventually } from '../support/signals.ts'
import { pauseAt, weakened } from '../support/weaken.ts'

const database = useDatabase()
const redis = useRedis()
const deployment = useDeployment(database, { redis })

const JOBS = 2000
const LIMIT = 5
const limited = defineTask<number>({ name: 'limited', concurrency: LIMIT })
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

const faults = [
  { name: 'by FLUSHALL', empty: async () => void (await redis.command('FLUSHALL')) },
  {
    name: 'by a kill -9 without persistence',
    async empty() {
      await redis.server.kill()
      await redis.server.restart()
    },
  },
]

describe.each(faults)('Redis emptied $name in the middle of a drain', ({ empty }) => {
  it('[X2] [S10] begins a new generation: nothing is lost, nothing runs twice, and the limit holds', async () => {
    const producer = deployment.producer({ tasks: [limited], redis: redis.url })
    const refs = await producer.enqueueMany(limited, numbers(JOBS))
    const done = counter()
    const workers = await Promise.all(
      numbers(3).map(() =>
        deployment.worker({
          maxConcurrentTasks: 4,
          handlers: [
            limited.handle(async () => {
              await new Promise(resolve => setImmediate(resolve))
              done.add()
            }),
          ],
        }),
      ),
    )
    const generations = new Set<string>()
    for (const part of [0.2, 0.5]) {
      await done.reached(JOBS * part)
      const before = (await redis.root(database))?.generation
      if (before) generations.add(before)
      await empty()
      await eventually('there is another generation', async () => {
        const now = (await redis.root(database))?.generation
        return now !== undefined && now !== before
      })
    }
    await done.reached(JOBS)
    await eventually('all come back', async () => workers.every(worker => worker.path === 'redis'))
    generations.add(String((await redis.root(database))?.generation))
    expect(generations.size).toBe(3)

    await deployment.atRest({ enqueued: refs })
    const runs = await deployment.runs()
    expect(runs).toHaveLength(JOBS)
    expect(mostAtOnce(runs)).toBeLessThanOrEqual(LIMIT)
    expect(new Set(runs.map(run => run.jobId)).size).toBe(JOBS)
  })
})

describe('Redis emptied while nobody has anything to do', () => {
  it('[X2] [S10] workers are woken by the next job in the new generation', async () => {
    const done = counter()
    const workers = await Promise.all(
      numbers(2).map(() => deployment.worker({ handlers: [limited.handle(() => done.add())] })),
    )
    const producer = deployment.producer({ tasks: [limited] })
    for (let round = 1; round <= 3; round++) {
      const before = (await redis.root(database))?.generation
      await redis.command('FLUSHALL')
      await eventually('there is another generation', async () => {
        const now = (await redis.root(database))?.generation
        return now !== undefined && now !== before
      })
      await eventually('all know it', async () => {
        const known = await redis.command('HLEN', await redis.key(database, 'workers'))
        return known === workers.length && workers.every(worker => worker.path === 'redis')
      })
      await producer.enqueue(limited, round)
      await done.reached(round)
    }
    await deployment.atRest()
  })
})

describe('Redis emptied, and Postgres breaks the connection on which a lane is read in', () => {
  it('[X2] [S10] the lane is read again, and workers come back', async () => {
    const done = counter()
    const worker = await deployment.worker({ handlers: [limited.handle(() => done.add())] })
    const producer = deployment.producer({ tasks: [limited] })
    const blocker = await database.connect()
    const pause = { name: 'read_lane', point: 'start', insertion: pauseAt(4713) }
    await weakened(database, [pause], async () => {
      await blocker.query('select pg_advisory_lock(4713)')
      await redis.command('FLUSHALL')
      await eventually('the read is broken', async () => {
        const rows = await database.rows(
          `select pg_terminate_backend(pid) from pg_stat_activity
           where datname = current_database() and wait_event = 'advisory' and query like '%read_lane%'`,
        )
        return rows.length > 0
      })
      await eventually('jobs come directly from Postgres', async () => worker.path === 'direct')
      await blocker.query('select pg_advisory_unlock(4713)')
    })
    await eventually('jobs come through Redis again', async () => worker.path === 'redis')
    await producer.enqueueMany(limited, numbers(20))
    await done.reached(20)
    await deployment.atRest()
  })
})
