/**
 * longshore, all settings at their defaults; with the tasks, limits and constraints of a workload. Given a Redis, its
 * producers and workers get it too, and a relay runs beside them; without one it is in direct mode.
 */
import pg from 'pg'
import type { JobData } from '../jobs/job-data.ts'
import type { OpenPeer } from './peer.ts'

type Longshore = typeof import('../../src/index.ts')
type Constraints = Readonly<Record<string, string>>

export const openLongshore: OpenPeer = async surroundings => {
  const longshore: Longshore = await import(`${surroundings.longshore}/dist/index.js`)
  const { postgres, redis, workload = {} } = surroundings
  const stores = { postgres, ...(redis === undefined ? {} : { redis }) }
  const { limited, constraints } = workload
  const tasks = Array.from({ length: workload.tasks ?? 1 }, (_, n) =>
    longshore.defineTask<JobData>({
      name: n === 0 ? 'noop' : `noop-${n}`,
      ...(limited && n < limited.tasks ? { concurrency: limited.concurrency } : {}),
      ...(workload.concurrencyPerKey ? { concurrencyPerKey: workload.concurrencyPerKey } : {}),
    }),
  )
  const [noop] = tasks
  if (!noop) throw new Error('a workload has at least one task')
  const query = async (text: string, values?: unknown[]) => {
    const client = new pg.Client(postgres)
    await client.connect()
    try {
      await client.query(text, values)
    } finally {
      await client.end()
    }
  }
  return {
    async install() {
      await longshore.migrate({ postgres })
      if (workload.sql !== undefined) await query(workload.sql)
    },
    async openProducer() {
      const producer = longshore.createProducer({ ...stores, tasks })
      const addMany = (list: readonly JobData[]): Promise<unknown> => {
        if (constraints) return query(ENQUEUE, enqueueArguments(constraints, list))
        if (tasks.length === 1) return producer.enqueueMany(noop, list)
        return Promise.all(
          tasks.map((task, n) =>
            producer.enqueueMany(
              task,
              list.filter(({ seq }) => seq % tasks.length === n),
            ),
          ),
        )
      }
      return { addOne: data => producer.enqueue(noop, data), addMany, close: () => producer.close() }
    },
    async startWorker(onJob, number) {
      const handlers = tasks.map(task => task.handle(job => onJob(job.payload)))
      const worker = longshore.createWorker({ ...stores, handlers })
      const { id } = await worker.start()
      const own = workload.properties?.[number % workload.properties.length]
      if (own) {
        await query('update longshore.workers set properties = $2, constraint_tags = $3 where id = $1', [
          id,
          own,
          subsetsOf(own).map(tagOf),
        ])
      }
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

const ENQUEUE = `select from longshore.enqueue_jobs(
  $1, array(select longshore.new_id() from generate_series(1, cardinality($2::int[]))), $2, $3, false)`

function enqueueArguments(constraints: readonly Constraints[], list: readonly JobData[]): unknown[] {
  const shapes = constraints.map(constraint => ({
    queue: 'default',
    task: 'noop',
    tag: 'default',
    constraintTag: tagOf(constraint),
    maxAttempts: 3,
    priority: 0,
  }))
  return [
    JSON.stringify(shapes),
    list.map(({ seq }) => (seq % shapes.length) + 1),
    list.map(data => JSON.stringify(data)).join('\n'),
  ]
}

const tagOf = (constraints: Constraints): string =>
  `c:${Object.entries(constraints)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => `${key}=${value}`)
    .join(',')}`

/** What jobs may ask for that a worker with these properties can run. */
const subsetsOf = (properties: Constraints): Constraints[] =>
  Object.entries(properties).reduce<Constraints[]>(
    (subsets, [key, value]) => subsets.concat(subsets.map(subset => ({ ...subset, [key]: value }))),
    [{}],
  )
