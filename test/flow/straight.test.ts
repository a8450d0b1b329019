/**
 * A backlog that goes on beyond the window of Redis is left to Postgres: few workers claim there themselves until one gets less
 * than it asked for.
 */
import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { START } from '../../src/redis/queue-index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { job, laneFacts, type TestQueue, useQueues, useRedis } from '../support/redis.ts'
import { counter, eventually, gate } from '../support/signals.ts'
import { watchTakes } from '../support/takes.ts'

const redis = useRedis()
const begin = useQueues(redis)
const database = useDatabase()
const deployment = useDeployment(database, {
  get redis() {
    return redis.server.url
  },
  bringsRelays: true,
})
const count = defineTask<number>({ name: 'count' })

/** A lane with four jobs in Redis, and more in Postgres. */
async function deepLane(workers: number): Promise<TestQueue> {
  const queue = await begin({ window: 4 })
  for (let worker = 1; worker <= workers; worker++) await queue.worker(worker)
  const jobs = ['a', 'b', 'c', 'd'].map((id, n) => job(id, n + 1))
  await queue.refill(queue.step(), laneFacts(1), START, { score: '5', id: 'e' }, jobs)
  return queue
}

const take = (queue: TestQueue, worker: number, limit: number, straight?: 'may' | 'short') =>
  queue.take({
    generation: 'g1',
    worker,
    limit,
    running: 0,
    freed: new Map(),
    done: [],
    ...(straight ? { straight } : {}),
  })

describe('a take from a lane that goes on in Postgres', () => {
  it('leaves the lane to Postgres, and says so to whoever takes next', async () => {
    const queue = await deepLane(2)
    expect(await take(queue, 1, 2, 'may')).toMatchObject({ ids: ['a', 'b'], goesStraight: true })
    expect(await queue.laneOf(1)).toEqual([])
    expect((await queue.snapshot()).jobs.size).toBe(0)
    expect(await take(queue, 2, 2, 'may')).toMatchObject({ ids: [], goesStraight: true })
  })

  it('goes on in Redis where the worker cannot go straight, or was not filled', async () => {
    const queue = await deepLane(1)
    expect(await take(queue, 1, 2)).toMatchObject({ ids: ['a', 'b'], goesStraight: false })
    expect(await take(queue, 1, 9, 'may')).toMatchObject({ ids: ['c', 'd'], goesStraight: false })
  })

  it('goes on in Redis where many workers would meet at the same rows', async () => {
    const queue = await deepLane(5)
    expect(await take(queue, 1, 2, 'may')).toMatchObject({ ids: ['a', 'b'], goesStraight: false })
    expect(await queue.laneOf(1)).toEqual(['c', 'd'])
  })

  it('does not leave lanes to Postgres beside a limit, whose slots are counted in Redis', async () => {
    const queue = await deepLane(1)
    await queue.lane(2, { limit: 50, free: '1' })
    expect(await take(queue, 1, 2, 'may')).toMatchObject({ goesStraight: false })
  })
})

describe('a take beside a worker that serves other lanes', () => {
  const both = { tasks: ['task', 'other'] }
  const deepAndOther = async () => {
    const queue = await begin({ window: 4 })
    const jobs = ['a', 'b', 'c', 'd'].map((id, n) => job(id, n + 1))
    await queue.refill(queue.step(), laneFacts(1), START, { score: '5', id: 'e' }, jobs)
    await queue.lane(2, { task: 'other' })
    return queue
  }

  it.each([
    ['fewer', { tasks: ['other'] }],
    ['fewer of them deep', { tasks: ['task'] }],
    ['others as well', { tasks: ['task', 'other', 'third'] }],
  ])('[X10] goes on in Redis where one that shares a lane serves %s', async (_, facts) => {
    const queue = await deepAndOther()
    await queue.lane(3, { task: 'third' })
    await queue.worker(1, both)
    await queue.worker(2, facts)
    expect(await take(queue, 2, 9)).toMatchObject({ goesStraight: false }) // idle from here on
    await queue.placeJobs(
      ['a', 'b', 'c', 'd'].map((id, n) => job(id, n + 1)),
      'audit',
    )
    expect(await take(queue, 1, 2, 'may')).toMatchObject({ ids: ['a', 'b'], goesStraight: false })
    const { bells } = await queue.placeJobs([job('z', 9, facts.tasks[0] === 'task' ? 1 : 2)])
    expect(bells + (facts.tasks[0] === 'task' ? 1 : 0)).toBe(1)
  })

  it('goes straight where all that share its lanes serve the same, in whatever order they came', async () => {
    const queue = await begin({ window: 4 })
    await queue.lane(2, { task: 'other' })
    await queue.worker(1, both)
    await queue.refill(queue.step(), laneFacts(1), START, { score: '5', id: 'e' }, [job('a'), job('b', 2)])
    await queue.worker(2, both)
    await queue.lane(3, { task: 'third' })
    await queue.worker(3, { tasks: ['third'] })
    expect(await take(queue, 1, 2, 'may')).toMatchObject({ ids: ['a', 'b'], goesStraight: true })
    // A worker comes that shares one of them.
    await queue.worker(4, { tasks: ['other'] })
    expect(await take(queue, 1, 2, 'may')).toMatchObject({ ids: [], goesStraight: false })
  })
})

describe('a lane that was left to Postgres', () => {
  it('takes in nothing: neither a hint, nor the relay, nor what it reads on', async () => {
    const queue = await deepLane(1)
    await take(queue, 1, 2, 'may')
    expect(await queue.hint([job('0', 0)])).toMatchObject({ placed: 0, bells: 0 })
    expect(await queue.placeJobs([job('1', 0)])).toMatchObject({ placed: 0, bells: 0 })
    const read = await queue.refill(queue.step(), laneFacts(1), { score: '5', id: 'e' }, null, [job('e', 5)])
    expect(read).toEqual({ code: 'SPILLED', bound: START })
    expect(await queue.laneOf(1)).toEqual([])
  })

  it.each([
    ['a worker got less than it asked for', async (queue: TestQueue) => take(queue, 1, 2, 'short')],
    ['a worker leaves', async (queue: TestQueue) => queue.unregister(1)],
    ['somebody takes who cannot go straight', async (queue: TestQueue) => take(queue, 2, 2)],
    [
      'there are too many workers for it',
      async (queue: TestQueue) => {
        for (const worker of [3, 4, 5]) await queue.worker(worker)
        await take(queue, 2, 2, 'may')
      },
    ],
  ])('is read in again when %s', async (_, happens) => {
    const queue = await deepLane(2)
    await take(queue, 1, 2, 'may')
    await happens(queue)
    const { lowLanes } = await queue.beat({ ...queue.step(), seq: 1 }, 'q', 5000)
    expect(lowLanes).toEqual([1])
    const read = await queue.refill({ epoch: '1', generation: 'g1', seq: 2 }, laneFacts(1), START, null, [
      job('e', 5),
    ])
    expect(read).toEqual({ code: 'OK', bound: null })
    expect(await take(queue, 2, 2, 'may')).toMatchObject({ ids: ['e'], goesStraight: false })
  })
})

describe('a worker before a deep backlog', () => {
  it('[C7] [D15] runs it in order, claiming from Postgres itself, and comes back to Redis at its end', async () => {
    await deployment.relay({ laneWindow: 20 })
    const producer = deployment.producer({ tasks: [count] })
    await producer.enqueueMany(
      count,
      Array.from({ length: 500 }, (_, n) => n),
    )
    const seen: number[] = []
    const takes = await watchTakes(redis.server.url, database)
    await deployment.worker({
      handlers: [count.handle(job => void seen.push(job.payload))],
      maxConcurrentTasks: 5,
    })
    await eventually('all have run', async () => seen.length === 500)
    expect(seen).toEqual(Array.from({ length: 500 }, (_, n) => n))
    expect(takes.ids.length).toBeLessThan(100)

    // The claim that is under way when the last one has run may still get the next itself.
    await eventually('one comes by way of Redis', async () => {
      const next = await producer.enqueue(count, 500)
      await producer.waitFor(next)
      return takes.ids.includes(next.id)
    })
    takes.stop()
  })

  it('[D11] leaves it to others when it stops in the middle', async () => {
    await deployment.relay({ laneWindow: 20 })
    const producer = deployment.producer({ tasks: [count] })
    await producer.enqueueMany(
      count,
      Array.from({ length: 300 }, (_, n) => n),
    )
    const seen: number[] = []
    const stopping = await deployment.worker({
      handlers: [count.handle(job => void seen.push(job.payload))],
      maxConcurrentTasks: 2,
    })
    await eventually('some have run', async () => seen.length > 50)
    await stopping.stop()
    await deployment.worker({ handlers: [count.handle(job => void seen.push(job.payload))] })
    await eventually('all have run', async () => seen.length >= 300)
    expect(new Set(seen).size).toBe(300)
  })
})

describe('an idle worker beside one that works off a backlog', () => {
  const deep = defineTask<number>({ name: 'deep' })
  const shared = defineTask<number>({ name: 'shared' })
  const onGpu = { constraints: { gpu: 'yes' } }

  it.each([
    ['has other tasks', [deep, shared], {}],
    ['has a property that it lacks', [shared], { gpu: 'yes' }],
  ] as const)(
    '[X10] is woken for a job that it may run, where the other %s',
    async (_, tasks, properties) => {
      await deployment.relay({ laneWindow: 20 })
      const producer = deployment.producer({ tasks: [deep, shared], redis: redis.server.url })
      const ran = counter()
      const door = gate()
      const blocked = counter()
      let isBlocked = false
      const handled = async () => {
        ran.add()
        if (!isBlocked) return
        blocked.add()
        await door.opened
      }
      const ranBeside: number[] = []
      await deployment.worker({
        handlers: tasks.map(task => task.handle(handled)),
        maxConcurrentTasks: 5,
        properties,
      })
      await deployment.worker({ handlers: [shared.handle(job => void ranBeside.push(job.payload))] })
      // Both know the lane.
      await producer.waitFor(await producer.enqueue(shared, -1))
      const numbers = Array.from({ length: 300 }, (_, n) => n)
      const before = ran.count
      if (tasks.length > 1) await producer.enqueueMany(deep, numbers)
      else await producer.enqueueMany(shared, numbers, onGpu)
      await ran.reached(before + 100)
      isBlocked = true
      await blocked.reached(5)
      await producer.enqueue(shared, 1000)
      await eventually('the idle worker has run it', async () => ranBeside.includes(1000), 5000)
      door.open()
      await eventually('all have run', async () => ran.count + ranBeside.length >= 302)
    },
  )
})
