/** How many connections to Postgres a worker process has, whatever it does: this file runs on both ways. */
import { describe, expect, it, onTestFinished } from 'vitest'
import { defineTask, type Worker, type WorkerOptions } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { counter, eventually, gate } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const NAME = 'counted-worker'
const MOST = 3
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

const short = defineTask<number>({ name: 'short' })
const grouped = defineTask<number>({ name: 'grouped' })
const talking = defineTask<number>({ name: 'talking' })
const failing = defineTask<number>({
  name: 'failing',
  retry: { maxAttempts: 2, backoff: { type: 'fixed', delay: 1 } },
})
const large = defineTask<string>({ name: 'large' })
const limited = defineTask<number>({ name: 'limited', concurrency: 3, concurrencyPerKey: 1 })
const completing = defineTask<number>({ name: 'completing' })

/** Looks again and again: the most at once, and each backend that was ever seen. */
function watchConnections() {
  const seen = new Set<number>()
  let [most, looks, isWatching] = [0, 0, true]
  const watching = (async () => {
    while (isWatching) {
      const rows = await database.rows<{ pid: number }>(
        'select pid from pg_stat_activity where application_name = $1 and datname = current_database()',
        [NAME],
      )
      looks++
      most = Math.max(most, rows.length)
      for (const { pid } of rows) seen.add(pid)
      await new Promise(resolve => setTimeout(resolve, 1))
    }
  })()
  onTestFinished(async () => {
    isWatching = false
    await watching
  })
  return {
    /** What was seen so far; forgotten from now on. */
    take: () => {
      const taken = { most, looks, seen: seen.size }
      ;[most, looks] = [0, 0]
      seen.clear()
      return taken
    },
  }
}

async function countedWorker(options: Omit<WorkerOptions, 'postgres'>): Promise<Worker> {
  const url = new URL(database.urlOf('worker'))
  url.searchParams.set('application_name', NAME)
  return deployment.worker({ ...options, postgres: url.href })
}

const leads = () =>
  eventually('a worker does the upkeep', async () => {
    const rows = await database.rows(`select from longshore.leader where expires_at > now()`)
    return rows.length > 0
  })

describe('a worker process', () => {
  it('[Q13] [X7] has three connections at most while it runs, leads, logs, reads payloads, ends groups and is asked for its health', async () => {
    const connections = watchConnections()
    const worker = await countedWorker({
      lease: '6s', // a beat every two seconds
      handlers: [
        short.handle(() => undefined),
        grouped.handle(async (_, ctx) => {
          await ctx.parents.all()
          await ctx.groupId()
        }),
        talking.handle(async (_, ctx) => {
          for (const n of numbers(20)) ctx.log(`line ${n}`)
          ctx.progress(50)
        }),
        failing.handle(({ attempt }) => {
          if (attempt === 1) throw new Error('once')
        }),
        large.handle(({ payload }) => void payload.length),
        limited.handle(() => undefined),
      ],
    })
    await leads()
    const producer = deployment.producer({ tasks: [short, grouped, talking, failing, large, limited] })
    const following = await producer.enqueue(talking, 0, { delay: 200 })
    const followed = (async () => {
      for await (const _ of producer.followLogs(following));
    })()
    const groups = numbers(20).map(n => {
      const group = producer.group()
      const first = group.add(grouped, n)
      for (const _ of numbers(5)) group.add(grouped, n, { after: first })
      return group
    })
    await Promise.all([
      ...groups.map(group => group.submit()),
      ...numbers(10).map(() => producer.enqueueMany(short, numbers(500))),
      producer.enqueueMany(talking, numbers(100)),
      producer.enqueueMany(failing, numbers(100)),
      producer.enqueueMany(limited, numbers(50), { delay: 20 }),
      ...numbers(20).map(n => producer.enqueue(limited, n, { concurrencyKey: `key ${n % 3}` })),
      ...numbers(10).map(() => producer.enqueue(large, 'x'.repeat(100_000))),
    ])
    const asking = (async () => {
      for (const _ of numbers(20)) await worker.health()
    })()
    await deployment.drained()
    await Promise.all([followed, asking, ...groups.map(group => producer.waitForGroup(group))])
    await worker.setProperties({ gpu: 'a100' })
    await worker.drain()
    await worker.resume()
    const { most, seen, looks } = connections.take()
    expect(looks).toBeGreaterThan(20)
    expect(most).toBe(MOST)
    // None was replaced, so none can have been missed between two looks.
    expect(seen).toBe(MOST)
  })

  it('[Q13] [X7] has one more for each transaction of ctx.complete, no more than maxCompletions, and closes them when they are idle', async () => {
    await database.rows('create table effects (job uuid)')
    const connections = watchConnections()
    const [begun, mayEnd] = [counter(), gate()]
    await countedWorker({
      maxCompletions: 2,
      handlers: [
        completing.handle((job, ctx) =>
          ctx.complete(async tx => {
            await tx.query('insert into effects values ($1)', [job.id])
            begun.add()
            await mayEnd.opened
          }),
        ),
        short.handle(() => undefined),
      ],
    })
    const producer = deployment.producer({ tasks: [completing, short] })
    await producer.enqueueMany(completing, numbers(10))
    await begun.reached(2)
    // The others go on beside them.
    const refs = await producer.enqueueMany(short, numbers(200))
    await Promise.all(refs.map(ref => producer.waitFor(ref)))
    expect(begun.count).toBe(2)
    mayEnd.open()
    await deployment.drained()
    expect(connections.take().most).toBe(MOST + 2)
    expect(await database.rows('select from effects')).toHaveLength(10)
    await eventually('they are closed', async () => {
      await new Promise(resolve => setTimeout(resolve, 100))
      return connections.take().most <= MOST
    })
  })
})
