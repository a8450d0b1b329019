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
import { eventually } from '../support/signals.ts'
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
