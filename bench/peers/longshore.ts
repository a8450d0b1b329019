/**
 * longshore, all settings at their defaults; with the tasks, limits and constraints of a workload. Given a Redis, its
 * producers and workers get it too, and a relay runs beside them; without one it is in direct mode.
 */
import pg from 'pg'
import type { JobData } from '../jobs/job-data.ts'
import type { OpenPeer } from './peer.ts'

type Longshore = typeof import('../../src/index.ts')

/** Jobs in one call of a transaction that stores many. */
const STAGED = 1000

export const openLongshore: OpenPeer = async surroundings => {
  const longshore: Longshore = await import(`${surroundings.longshore}/dist/index.js`)
  const { postgres, redis, workload = {} } = surroundings
  const stores = { postgres, ...(redis === undefined ? {} : { redis }) }
  const { limited, constraints = [], properties = [] } = workload
  const tasks = Array.from({ length: workload.tasks ?? 1 }, (_, n) =>
    longshore.defineTask<JobData>({
      name: n === 0 ? 'noop' : `noop-${n}`,
      ...(limited && n < limited.tasks ? { concurrency: limited.concurrency } : {}),
      ...(workload.concurrencyPerKey ? { concurrencyPerKey: workload.concurrencyPerKey } : {}),
    }),
  )
  const busy = tasks.slice(0, workload.busyTasks)
  const connect = async () => {
    const client = new pg.Client(postgres)
    await client.connect()
    return client
  }
  return {
    async install() {
      await longshore.migrate({ postgres })
      const keys = new Set([...constraints, ...properties].flatMap(Object.keys))
      const client = await connect()
      try {
        // In SQL, as every version understands it: the other of a pair may be an older one.
        if (keys.size > 0) await client.query('update longshore.settings set property_keys = $1', [[...keys]])
        if (workload.sql !== undefined) await client.query(workload.sql)
      } finally {
        await client.end()
      }
    },
    async openProducer() {
      const producer = longshore.createProducer({ ...stores, tasks })
      const optionsOf = ({ seq }: JobData) => {
        const asked = constraints[seq % constraints.length]
        return asked ? { constraints: asked } : undefined
      }
      const addMany = async (list: readonly JobData[], tx?: pg.Client) => {
        const options = { ...(tx ? { tx } : {}), ...(constraints.length > 0 ? { each: optionsOf } : {}) }
        const add = (n: number) =>
          producer.enqueueMany(
            busy[n] ?? fail(),
            busy.length === 1 ? list : list.filter(({ seq }) => seq % busy.length === n),
            options,
          )
        // A transaction has one connection.
        if (tx) for (const n of busy.keys()) await add(n)
        else await Promise.all([...busy.keys()].map(add))
      }
      return {
        addOne: data => producer.enqueue(busy[data.seq % busy.length] ?? fail(), data, optionsOf(data)),
        addMany: list => addMany(list),
        async stage(list) {
          const client = await connect()
          await client.query('begin')
          for (let from = 0; from < list.length; from += STAGED)
            await addMany(list.slice(from, from + STAGED), client)
          return async () => {
            await client.query('commit')
            await client.end()
          }
        },
        close: () => producer.close(),
      }
    },
    async startWorker(onJob, number) {
      const handlers = tasks.map(task => task.handle(job => onJob(job.payload)))
      const own = properties[number % properties.length]
      const worker = longshore.createWorker({ ...stores, handlers, ...(own ? { properties: own } : {}) })
      await worker.start()
      return worker
    },
    ...(redis === undefined
      ? {}
      : {
          async startRelay() {
            const relay = longshore.createRelay(stores)
            await relay.start()
            return relay
          },
        }),
    countUnfinished: 'select count(*)::int as n from longshore.jobs',
  }
}

function fail(): never {
  throw new Error('a workload has at least one task')
}
