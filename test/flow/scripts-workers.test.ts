/** Workers come, change and go; copies are spread over them by mode and strategy, and the idle are woken. */
import { describe, expect, it, onTestFinished } from 'vitest'
import { bellChannel } from '../../src/redis/names.ts'
import { job, type TestQueue, useQueues, useRedis } from '../support/redis.ts'

const redis = useRedis()
const begin = useQueues(redis)

const jobs = (count: number, lane = 1) =>
  Array.from({ length: count }, (_, n) => job(`j${1000 + n}`, 1, lane))

async function sizes(queue: TestQueue): Promise<number[]> {
  const { workers } = await queue.snapshot()
  return [...workers].sort(([a], [b]) => a - b).map(([, worker]) => worker.queue.length)
}

describe('registering', () => {
  it('[D10] fanout: what is ready already is taken, and what comes later is copied', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.placeJobs([job('a'), job('b')])
    await queue.worker(1)
    expect(await queue.takeIds(1, 5)).toEqual(['a', 'b'])
    await queue.placeJobs([job('c')])
    expect(await queue.queueOf(1)).toEqual(['c'])
  })

  it('[D10] fanout: nothing is copied before the worker has looked at what was there', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.placeJobs([job('b', 2)])
    await queue.worker(1)
    await queue.placeJobs([job('a', 1), job('c', 3)])
    expect(await queue.queueOf(1)).toEqual([])
    expect(await queue.takeIds(1, 2)).toEqual(['a', 'b'])
    expect(await queue.takeIds(1, 2)).toEqual(['c'])
  })

  it('[D10] balanced: what nobody holds is taken', async () => {
    const queue = await begin({ width: 1 })
    await queue.lane(1)
    await queue.placeJobs([job('a')])
    await queue.worker(1)
    expect(await queue.takeIds(1, 1)).toEqual(['a'])
  })

  it('works before the lane is known', async () => {
    const queue = await begin()
    await queue.worker(1)
    await queue.lane(1, {}, [job('a')])
    expect(await queue.queueOf(1)).toEqual(['a'])
  })

  it('[D9] again, with other tags, offers what it may not run any more to others', async () => {
    const queue = await begin({ width: 1 })
    await queue.lane(1)
    await queue.worker(1)
    await queue.placeJobs([job('a'), job('b')])
    await queue.worker(2, { tags: ['other'] })
    await queue.worker(3)
    await queue.takeIds(3, 1)
    await queue.worker(1, { tags: ['other'] })
    const { kinds, held } = await queue.snapshot()
    expect(kinds.get(1)?.workers).toEqual([3])
    expect(held.size).toBeLessThanOrEqual(1)
    expect(await queue.takeIds(3, 5)).toHaveLength(1)
    expect(await queue.takeIds(1, 5)).toEqual([])
  })

  it('is answered LOST in another generation', async () => {
    const queue = await begin()
    expect(await queue.register('g0', 1, { tasks: [], tags: [], constraintTags: [] })).toBe('LOST')
    expect((await queue.snapshot()).workers.size).toBe(0)
  })
})

describe('leaving', () => {
  it('[D11] balanced: what stood in its queue is offered to the others', async () => {
    const queue = await begin({ width: 1 })
    await queue.lane(1)
    for (const worker of [1, 2, 3]) await queue.worker(worker)
    await queue.placeJobs(jobs(6))
    await queue.unregister(1)
    expect(await sizes(queue)).toEqual([3, 3])
    expect((await queue.snapshot()).held.size).toBe(6)
  })

  it('[D11] waits in its lane if nobody is left', async () => {
    for (const width of [0, 1]) {
      const queue = await begin({ width })
      await queue.lane(1)
      await queue.worker(1)
      await queue.placeJobs([job('a')])
      await queue.unregister(1)
      expect(await queue.laneOf(1)).toEqual(['a'])
      await queue.worker(2)
      expect(await queue.takeIds(2, 1)).toEqual(['a'])
      await queue.remove(queue.step(), ['a'])
      await redis.client.del(queue.root)
      await redis.client.flushall()
    }
  })

  it('[D11] tells what it took and did not claim, for the relay to place again', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.worker(1)
    await queue.worker(2)
    await queue.placeJobs([job('a'), job('b')])
    await queue.takeIds(1, 1)
    await queue.takeIds(2, 1)
    expect(await queue.unregister(1)).toEqual(['a'])
    expect((await queue.placeJobs([job('a')])).placed).toBe(0)
    expect((await queue.placeJobs([job('a')], 'audit')).placed).toBe(1)
    expect(await queue.takeIds(2, 1)).toEqual(['a'])
  })

  it('leaves no key of the worker behind', async () => {
    const queue = await begin()
    await queue.lane(1)
    const before = await queue.dump()
    await queue.worker(17)
    await queue.placeJobs([job('a')])
    await queue.takeIds(17, 5)
    await queue.takeIds(17, 5, { done: ['a'] })
    await queue.unregister(17)
    const after = await queue.dump()
    expect({ ...after, [queue.root]: 0 }).toEqual({ ...before, [queue.root]: 0 })
  })
})

describe('strategies', () => {
  it('[D4] least-queue counts what is queued and what runs', async () => {
    const queue = await begin({ width: 1 })
    await queue.lane(1)
    for (const [worker, running] of [
      [1, 4],
      [2, 0],
      [3, 2],
    ] as const) {
      await queue.worker(worker)
      await queue.takeIds(worker, 1, { running })
    }
    await queue.placeJobs(jobs(9))
    expect(await sizes(queue)).toEqual([1, 5, 3])
  })

  it('[D4] ties go to the lowest number, every time', async () => {
    const queue = await begin({ width: 1 })
    await queue.lane(1)
    for (const worker of [10, 9, 2]) await queue.worker(worker)
    await queue.placeJobs([job('a'), job('b'), job('c'), job('d')])
    const { held } = await queue.snapshot()
    expect(Object.fromEntries(held)).toEqual({ a: [2], b: [9], c: [10], d: [2] })
  })

  it('[D1] round-robin goes around', async () => {
    const queue = await begin({ width: 1, strategy: 'round-robin' })
    await queue.lane(1)
    for (const worker of [1, 2, 3]) await queue.worker(worker)
    await queue.placeJobs([job('a'), job('b')])
    await queue.placeJobs([job('c'), job('d')])
    expect(Object.fromEntries((await queue.snapshot()).held)).toEqual({ a: [1], b: [2], c: [3], d: [1] })
  })

  it('[D1] random reaches everyone about equally often', async () => {
    const queue = await begin({ width: 1, strategy: 'random', depth: 1000, window: 1000 })
    await queue.lane(1)
    for (const worker of [1, 2, 3, 4]) await queue.worker(worker)
    await queue.placeJobs(jobs(800))
    // Six standard deviations.
    for (const size of await sizes(queue)) expect(Math.abs(size - 200)).toBeLessThan(75)
  })

  it('[D1] random reaches everyone also with one job a call', async () => {
    const queue = await begin({ width: 1, strategy: 'random' })
    await queue.lane(1)
    for (const worker of [1, 2, 3, 4]) await queue.worker(worker)
    for (const one of jobs(80)) await queue.placeJobs([one])
    for (const size of await sizes(queue)) expect(size).toBeGreaterThan(0)
  })

  it('[D1] a width of two copies into two queues', async () => {
    const queue = await begin({ width: 2 })
    await queue.lane(1)
    for (const worker of [1, 2, 3]) await queue.worker(worker)
    await queue.placeJobs(jobs(3))
    expect(await sizes(queue)).toEqual([2, 2, 2])
  })

  it('[D1] another mode empties the queues, and nothing that waits is lost or out of order', async () => {
    const queue = await begin({ depth: 3 })
    await queue.lane(1)
    await queue.worker(1)
    await queue.worker(2)
    await queue.placeJobs(jobs(6))
    expect(await queue.setMode(queue.step(), { width: 1, strategy: 'least-queue' })).toBe('OK')
    expect(await sizes(queue)).toEqual([0, 0])
    expect((await queue.snapshot()).held.size).toBe(0)
    expect(await queue.takeIds(1, 4)).toEqual(['j1000', 'j1001', 'j1002', 'j1003'])
    expect(await queue.takeIds(2, 4)).toEqual(['j1004', 'j1005'])
    await queue.placeJobs([job('a'), job('b')])
    // Worker 1 has not come up short yet.
    expect(await queue.takeIds(1, 4)).toEqual(['a', 'b'])
    await queue.setMode(queue.step(), { width: 0, strategy: 'least-queue' })
    for (const worker of [1, 2]) await queue.takeIds(worker, 1)
    await queue.placeJobs([job('c')])
    expect(await sizes(queue)).toEqual([1, 1])
  })
})

describe('bells', () => {
  async function listen(workers: readonly number[]): Promise<number[]> {
    const rung: number[] = []
    const listener = redis.client.duplicate()
    onTestFinished(() => listener.disconnect())
    const channels = new Map(workers.map(worker => [bellChannel(redis.deployment, worker), worker]))
    listener.on('message', (channel: string) => rung.push(channels.get(channel) ?? -1))
    await listener.subscribe(...channels.keys())
    return rung
  }
  /** Messages that were sent before this are heard after it. */
  async function heard(rung: readonly number[], count: number): Promise<readonly number[]> {
    await expect.poll(() => rung.length).toBe(count)
    return rung
  }

  it('[S6] wake one worker for each job, idle longest first', async () => {
    const queue = await begin()
    await queue.lane(1)
    for (const worker of [1, 2, 3, 4]) await queue.worker(worker)
    for (const worker of [3, 1, 4, 2]) await queue.takeIds(worker, 1)
    // Comes up short again, and stays where it stood.
    await queue.takeIds(3, 1)
    const rung = await listen([1, 2, 3, 4])
    expect((await queue.placeJobs([job('a'), job('b')])).bells).toBe(2)
    expect((await queue.placeJobs([job('a'), job('b')])).bells).toBe(0)
    expect((await queue.hint([job('c')])).bells).toBe(1)
    expect(await heard(rung, 3)).toEqual([3, 1, 4])
    expect((await queue.snapshot()).idle).toEqual([2])
  })

  it('[S6] 10,000 jobs wake each of 50 idle workers once', async () => {
    const queue = await begin({ window: 10_000, depth: 20 })
    await queue.lane(1)
    for (let worker = 1; worker <= 50; worker++) {
      await queue.worker(worker)
      await queue.takeIds(worker, 1)
    }
    let bells = 0
    const all = jobs(10_000)
    for (let first = 0; first < all.length; first += 1000)
      bells += (await queue.placeJobs(all.slice(first, first + 1000))).bells
    expect(bells).toBe(50)
  })

  it('[S6] pass by workers that may not run the job, and those that work', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.worker(1, { tags: ['other'] })
    await queue.worker(2)
    await queue.worker(3)
    await queue.takeIds(1, 1)
    await queue.takeIds(3, 1)
    const rung = await listen([1, 2, 3])
    expect((await queue.placeJobs([job('a'), job('b')])).bells).toBe(1)
    expect(await heard(rung, 1)).toEqual([3])
  })

  it('[S6] wake for no more jobs than have slots, and for each slot that is freed', async () => {
    const queue = await begin()
    await queue.lane(1, { limit: 50, free: '1' })
    await queue.lane(2, { kind: 1, limit: 50, free: '1', keyLimit: 60, keyFree: '5' })
    for (const worker of [1, 2, 3, 4]) {
      await queue.worker(worker)
      await queue.takeIds(worker, 1)
    }
    const rung = await listen([1, 2, 3, 4])
    expect((await queue.placeJobs([1, 2, 3, 4, 5].map(n => job(`j${n}`, n, n < 3 ? 1 : 2)))).bells).toBe(1)
    expect(await queue.takeIds(1, 1)).toEqual(['j1'])
    // Its slot comes back, and it wants nothing itself.
    await queue.takeIds(1, 0, { freed: new Map([[1, 1]]), done: ['j1'] })
    expect(await heard(rung, 2)).toEqual([1, 2])
    expect(await queue.takeIds(2, 1)).toEqual(['j2'])
    // A slot of both of its limits is one job's.
    await queue.takeIds(2, 0, { freed: new Map([[2, 1]]), done: ['j2'] })
    expect(await heard(rung, 3)).toEqual([1, 2, 3])
    expect(await queue.takeIds(3, 1)).toEqual(['j3'])
    await queue.setSlots(queue.step(), 50, '9', null)
    expect(await heard(rung, 4)).toEqual([1, 2, 3, 4])
  })

  it('[S6] wake for a slot that a job gives back which goes elsewhere', async () => {
    const queue = await begin()
    await queue.lane(1, { limit: 50, free: '1' })
    await queue.lane(2, { tag: 'x' })
    await queue.worker(1)
    await queue.worker(2)
    await queue.placeJobs([job('a'), job('b')])
    expect(await queue.takeIds(1, 1)).toEqual(['a'])
    await queue.takeIds(2, 1)
    const rung = await listen([1, 2])
    await queue.putBack('g1', 1, [{ ...job('a', 1, 2), answer: 'moved' }])
    expect(await heard(rung, 1)).toEqual([2])
    expect(await queue.takeIds(2, 1)).toEqual(['b'])
  })
})
