import { setTimeout as pause } from 'node:timers/promises'
import { describe, expect, inject, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { noops } from '../support/process-tasks.ts'
import { lookAtQueue } from '../support/queue-look.ts'
import { counter, eventually } from '../support/signals.ts'
import { watchTakes } from '../support/takes.ts'

const redis = inject('redisUrl')
const database = useDatabase()
const deployment = useDeployment(database, { redis })
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

const drained = () =>
  eventually(
    'nothing is unfinished',
    async () => (await database.rows('select from longshore.jobs limit 1')).length === 0,
    50_000,
  )

/** Looks at Redis again and again until told to stop, as often as it answers. */
async function watchSizes() {
  const look = await lookAtQueue(database, redis)
  const most = { jobs: 0, lane: 0, queue: 0 }
  let isWatching = true
  let looks = 0
  const watching = (async () => {
    while (isWatching) {
      const keys = await look.keys()
      if (!keys) continue
      const [lanes, workers] = await Promise.all([
        look.client.smembers(keys.of('lanes')),
        look.client.hkeys(keys.of('workers')),
      ])
      const sizes = (name: string, of: string[]) =>
        Promise.all(of.map(each => look.client.zcard(keys.of(`${name}:${each}`))))
      most.jobs = Math.max(most.jobs, (await look.client.hlen(keys.of('jobs'))) - 1)
      most.lane = Math.max(most.lane, ...(await sizes('lane', lanes)))
      most.queue = Math.max(most.queue, ...(await sizes('queue', workers)))
      looks++
    }
  })()
  return async () => {
    isWatching = false
    await watching
    expect(looks).toBeGreaterThan(10)
    return most
  }
}

describe('what is bounded', () => {
  it.each(['fanout', 'balanced'] as const)(
    '[S9] in producers, relay and workers may be full at once: all move again, in %s mode',
    async scheduleMode => {
      await deployment.relay({ scheduleMode, laneWindow: 10, queueDepth: 2 })
      const free = defineTask<number>({ name: 'free' })
      const limited = defineTask<number>({ name: 'limited', concurrency: 2, concurrencyPerKey: 1 })
      const ran = new Map<string, number>()
      const done = counter()
      const run = async ({ id }: { id: string }) => {
        await pause(1)
        ran.set(id, (ran.get(id) ?? 0) + 1)
        done.add()
      }
      for (const n of numbers(3)) {
        const tiny = { maxConcurrentTasks: n + 1, claimBatchSize: 1 }
        await deployment.worker({ ...tiny, handlers: [free.handle(run), limited.handle(run)] })
      }
      const stopWatching = await watchSizes()
      const producers = numbers(3).map(() => deployment.producer({ connections: 1, redis }))
      const refs = await Promise.all(
        producers.map(async (producer, p) => {
          const many = await producer.enqueueMany(free, numbers(150), { priority: p })
          const single = await Promise.all(
            numbers(100).map(n => producer.enqueue(free, n, { priority: n % 3, delay: n % 5 })),
          )
          const keyed = await Promise.all(
            numbers(30).map(n => producer.enqueue(limited, n, { concurrencyKey: `key ${n % 4}` })),
          )
          return [...many, ...single, ...keyed].map(ref => ref.id)
        }),
      )
      await done.reached(840)
      await drained()
      const most = await stopWatching()
      expect(most.lane).toBeLessThanOrEqual(10)
      expect(most.queue).toBeLessThanOrEqual(2)
      expect([...ran.keys()].sort()).toEqual(refs.flat().sort())
      expect(Math.max(...ran.values())).toBe(1)
    },
  )

  it('[D15] in Redis is never above the window of each lane, and the order is exact over its edge', async () => {
    const producer = deployment.producer({ tasks: noops })
    const urgent = { constraints: { gpu: 'a100' } }
    const nowhere = { constraints: { gpu: 'none' } }
    for (const at of numbers(100)) {
      const task = noops[(at * 7) % 3]
      if (!task) throw new Error('no task')
      const runAt = new Date(1_700_000_000_000 + ((at * 5) % 11))
      const options = { priority: (at * 3) % 8, runAt, ...(at % 4 === 0 ? urgent : {}) }
      await producer.enqueueMany(task, numbers(50), options)
    }
    // Nobody may run these: they must not be in the way.
    const stranded = await producer.enqueueMany(noops[0] as (typeof noops)[number], numbers(200), {
      priority: 9,
      ...nowhere,
    })
    const order = await database.rows<{ id: string }>(
      `select j.id from longshore.jobs j join longshore.lanes l on l.id = j.lane
       where l.constraint_tag not like '%none%'
       order by longshore.priority_of(j.score) desc, longshore.run_at_of(j.score), j.id`,
    )
    expect(order).toHaveLength(5000)

    await deployment.relay({ laneWindow: 50 })
    const takes = await watchTakes(redis, database)
    const stopWatching = await watchSizes()
    const done = counter()
    // With fewer workers in the queue such a backlog would be left to Postgres.
    const bystander = defineTask({ name: 'bystander' }).handle(() => undefined)
    await Promise.all(numbers(4).map(() => deployment.worker({ handlers: [bystander] })))
    await deployment.worker({
      properties: { gpu: 'a100' },
      // The first claim takes every permit, and handlers end at once: one claim at a time.
      maxConcurrentTasks: 10,
      handlers: noops.map(task => task.handle(() => done.add())),
    })
    await done.reached(5000)
    const most = await stopWatching()
    takes.stop()
    const ids = order.map(row => row.id)
    expect((await deployment.runs()).map(run => run.jobId)).toEqual(ids)
    // On a machine with other things to do a beat may be late, and the worker goes directly to Postgres for a while.
    const rank = new Map(ids.map((id, n) => [id, n]))
    expect(takes.ids.length).toBeGreaterThan(1000)
    expect(takes.ids).toEqual([...takes.ids].sort((a, b) => (rank.get(a) ?? 0) - (rank.get(b) ?? 0)))
    // Three tasks, each with and without a constraint, and the lane of those that nobody may run.
    expect(most.lane).toBeGreaterThan(25)
    expect(most.lane).toBeLessThanOrEqual(50)
    expect(most.jobs).toBeLessThanOrEqual(7 * 50)
    for (const { id } of stranded) await producer.cancel(id)
  })
})
