/** Claims under limits never wait for each other in a circle. Postgres counts what it had to break. */
import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { counter } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)

const WORKERS = 8
const BURST = 60
const MOST_WAITING = 300
/** Too short to find each time what comes twice a minute; `npm run test:all` takes longer. */
const LAST_MS = process.env['LONGSHORE_ALL'] ? 25_000 : 5000

const countDeadlocks = async () => {
  const [row] = await database.rows<{ deadlocks: number }>(
    'select deadlocks::int from pg_stat_database where datname = current_database()',
  )
  return row?.deadlocks ?? 0
}

describe('workers under shared limits', () => {
  it.each<[name: string, limits: object, keys: readonly string[]]>([
    ['one task in two tags', { concurrency: 100 }, []],
    ['a task and its keys', { concurrency: 100, concurrencyPerKey: 60 }, ['a', 'b', 'c']],
  ])(
    '[X10] take and free slots of %s in bursts without a deadlock',
    async (name, limits, keys) => {
      const before = await countDeadlocks()
      const task = defineTask<number>({ name, ...limits })
      const producer = deployment.producer({ tasks: [task] })
      const done = counter()
      const handler = task.handle(async job => {
        await new Promise(resolve => setTimeout(resolve, job.payload))
        done.add()
      })
      const workers = await Promise.all(
        Array.from({ length: WORKERS }, () =>
          deployment.worker({ handlers: [handler], tags: ['default', 'blue'] }),
        ),
      )
      const payloads = Array.from({ length: BURST }, (_, n) => n % 5)
      const until = performance.now() + LAST_MS
      for (let bursts = 0; performance.now() < until; bursts += 2) {
        const key = keys[(bursts / 2) % keys.length]
        for (const tag of ['default', 'blue'])
          await producer.enqueueMany(task, payloads, { tag, ...(key ? { concurrencyKey: key } : {}) })
        await done.reached((bursts + 2) * BURST - MOST_WAITING)
      }
      await deployment.drained()
      // A connection tells what it has counted when it closes, at the latest.
      await Promise.all(workers.map(worker => worker.stop()))
      expect((await countDeadlocks()) - before).toBe(0)
    },
    120_000,
  )
})
