/** A worker takes the best jobs that it may run: out of its queue, its lanes, and lanes under limits. */
import { describe, expect, it } from 'vitest'
import { START } from '../../src/redis/queue-index.ts'
import { job, laneFacts, useQueues, useRedis } from '../support/redis.ts'

const redis = useRedis()
const begin = useQueues(redis)

describe('the order', () => {
  it('[D13] [C7] a queue pops by score, and by id among equals', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.lane(2, { tag: 'x' })
    await queue.worker(1, { tags: ['default', 'x'] })
    await queue.placeJobs([job('d', 5), job('b', 5, 2), job('e', 4), job('a', 6), job('c', 5)])
    expect(await queue.takeIds(1, 2)).toEqual(['e', 'b'])
    expect(await queue.takeIds(1, 9)).toEqual(['c', 'd', 'a'])
  })

  it('[C7] jobs under limits are merged in at their place', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.lane(2, { tag: 'x', limit: 50, free: '2' })
    await queue.worker(1, { tags: ['default', 'x'] })
    await queue.placeJobs([
      job('a', 1),
      job('b', 2, 2),
      job('c', 3),
      job('d', 4, 2),
      job('e', 5, 2),
      job('f', 6),
    ])
    expect(await queue.takeIds(1, 9)).toEqual(['a', 'b', 'c', 'd', 'f'])
  })

  it('[C7] lanes whose best jobs have equal scores come in the order of these jobs', async () => {
    const queue = await begin()
    await queue.lane(1, { hasLimits: true })
    const ids = ['c', 'b', 'a', 'd']
    for (const [n] of ids.entries())
      await queue.lane(n + 2, { kind: 1, hasLimits: true, keyLimit: 60 + n, keyFree: '1' })
    await queue.placeJobs(ids.map((id, n) => job(id, 7, n + 2)))
    await queue.worker(1)
    for (const id of ['a', 'b', 'c', 'd']) expect(await queue.takeIds(1, 1)).toEqual([id])
  })
})

describe('a job that is taken', () => {
  it('[D7] is in no other queue when the next worker looks', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.worker(1)
    await queue.worker(2)
    await queue.placeJobs([job('a')])
    const [first, second] = await Promise.all([queue.takeIds(1, 1), queue.takeIds(2, 1)])
    expect([...first, ...second]).toEqual(['a'])
    expect(await queue.queueOf(2)).toEqual([])
    const { taken, jobs } = await queue.snapshot()
    expect(taken.get('a')).toMatchObject({ lane: 1, leaseToken: '0', score: '1' })
    expect(jobs.size).toBe(0)
  })

  it('is forgotten when its worker says that it is claimed, and only by that worker', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.worker(1)
    await queue.worker(2)
    await queue.placeJobs([job('a')])
    await queue.takeIds(1, 1)
    await queue.takeIds(2, 0, { done: ['a'] })
    expect((await queue.snapshot()).taken.size).toBe(1)
    await queue.takeIds(1, 0, { done: ['a'] })
    expect((await queue.snapshot()).taken.size).toBe(0)
  })

  it('goes home when it is put back, and only by the worker that took it', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.worker(1)
    await queue.worker(2)
    await queue.placeJobs([job('a'), job('b', 2)])
    await queue.takeIds(1, 2)
    await queue.putBack('g1', 2, [{ ...job('a'), answer: 'busy' }])
    expect(await queue.laneOf(1)).toEqual([])
    await queue.putBack('g1', 1, [{ ...job('a', 9), answer: 'moved' }])
    expect(await queue.laneOf(1)).toEqual(['a'])
    expect(await queue.takeIds(2, 1)).toEqual(['a'])
    await queue.takeIds(1, 0, { done: ['b'] })
  })

  it('stands where the relay says when it has changed since, whatever its worker puts back; its slot is free', async () => {
    const queue = await begin()
    await queue.lane(1, { limit: 50, free: '1' })
    await queue.lane(2, { tag: 'x' })
    await queue.worker(1)
    await queue.placeJobs([job('a')])
    await queue.takeIds(1, 1)
    await queue.placeJobs([job('a')])
    expect(await queue.laneOf(1)).toEqual([])
    await queue.placeJobs([job('a', 1, 2)])
    await queue.putBack('g1', 1, [{ ...job('a'), answer: 'moved' }])
    expect(await queue.laneOf(2)).toEqual(['a'])
    const { taken, limits } = await queue.snapshot()
    expect(taken.size).toBe(0)
    expect(limits.get(50)?.free).toBe(1)
    await queue.takeIds(1, 1)
    await queue.placeJobs([job('a', 9, 2)])
    await queue.putBack('g1', 1, [{ id: job('a').id, answer: 'unclear' }])
    expect((await queue.snapshot()).jobs.get('a')?.score).toBe('9')
  })

  it('goes home as it was taken when the claim’s answer is not known, and its slot is free', async () => {
    const queue = await begin()
    await queue.lane(1, { limit: 50, free: '1' })
    await queue.worker(1)
    await queue.placeJobs([job('a', 7, 1, '3')])
    await queue.takeIds(1, 1)
    await queue.putBack('g1', 2, [{ id: job('a').id, answer: 'unclear' }])
    expect(await queue.laneOf(1)).toEqual([])
    await queue.putBack('g1', 1, [{ id: job('a').id, answer: 'unclear' }])
    const { jobs, limits } = await queue.snapshot()
    expect(jobs.get('a')).toEqual({ lane: 1, score: '7', leaseToken: '3' })
    expect(limits.get(50)?.free).toBe(1)
    expect(await queue.takeIds(1, 1)).toEqual(['a'])
  })

  it('[D14] comes from another worker’s queue if that one is slow', async () => {
    const queue = await begin({ width: 1 })
    await queue.lane(1)
    await queue.worker(1)
    await queue.placeJobs(['a', 'b', 'c'].map((id, n) => job(id, n)))
    await queue.worker(2)
    expect(await queue.queueOf(1)).toEqual(['a', 'b', 'c'])
    expect(await queue.takeIds(2, 2)).toEqual(['a', 'b'])
    expect(await queue.takeIds(1, 2)).toEqual(['c'])
  })

  it('[D10] balanced: is rather one that nobody holds than one that another holds', async () => {
    const queue = await begin({ width: 1, depth: 2 })
    await queue.lane(1)
    await queue.worker(1)
    await queue.placeJobs(['a', 'b', 'c', 'd'].map((id, n) => job(id, n)))
    await queue.worker(2)
    expect(await queue.queueOf(2)).toEqual([])
    expect(await queue.takeIds(2, 3)).toEqual(['c', 'd', 'a'])
  })

  it('is answered LOST in another generation, and UNKNOWN to a stranger', async () => {
    const queue = await begin()
    const ask = { worker: 1, limit: 1, running: 0, freed: new Map(), done: [] }
    const nothing = { ids: [], lanes: [], limited: new Map(), goesStraight: false }
    expect(await queue.take({ generation: 'g0', ...ask })).toEqual({ code: 'LOST', ...nothing })
    expect(await queue.take({ generation: 'g1', ...ask })).toEqual({ code: 'UNKNOWN', ...nothing })
  })
})

describe('slots', () => {
  it('of one limit, of a key, or of both are counted when a job is taken', async () => {
    const queue = await begin()
    await queue.lane(1, { limit: 50, free: '2' })
    await queue.lane(2, { tag: 'x', hasLimits: true })
    await queue.lane(3, { tag: 'x', kind: 2, keyLimit: 60, keyFree: '2' })
    await queue.lane(4, { tag: 'y', limit: 51, free: '3' })
    await queue.lane(5, { tag: 'y', kind: 4, limit: 51, free: '3', keyLimit: 61, keyFree: '1' })
    await queue.worker(1, { tags: ['default', 'x', 'y'] })
    await queue.placeJobs(
      [1, 3, 5, 4].flatMap(lane => ['a', 'b', 'c'].map(id => job(`${lane}${id}`, lane === 5 ? 0 : 1, lane))),
    )
    expect((await queue.takeIds(1, 99)).sort()).toEqual(['1a', '1b', '3a', '3b', '4a', '4b', '5a'])
    const { limits } = await queue.snapshot()
    expect(Object.fromEntries([...limits].map(([limit, { free }]) => [limit, free]))).toEqual({
      50: 0,
      51: 0,
      60: 0,
      61: 0,
    })
  })

  it('that a worker frees are there for it in the same step', async () => {
    const queue = await begin()
    await queue.lane(1, { hasLimits: true })
    await queue.lane(2, { kind: 1, keyLimit: 60, keyFree: '1' })
    await queue.worker(1)
    await queue.placeJobs([job('a', 1, 2), job('b', 2, 2)])
    expect(await queue.takeIds(1, 5)).toEqual(['a'])
    expect(await queue.takeIds(1, 5)).toEqual([])
    expect(await queue.takeIds(1, 5, { freed: new Map([[2, 1]]), done: ['a'] })).toEqual(['b'])
  })

  it('of a key count for every kind that has it', async () => {
    const queue = await begin()
    for (const [kind, tag] of [
      [1, 'x'],
      [3, 'y'],
    ] as const) {
      await queue.lane(kind, { tag, hasLimits: true })
      await queue.lane(kind + 1, { tag, kind, keyLimit: 60, keyFree: '1' })
    }
    await queue.lane(5, { tag: 'y', kind: 3, keyLimit: 61, keyFree: '1' })
    await queue.worker(1, { tags: ['x'] })
    await queue.worker(2, { tags: ['y'] })
    await queue.placeJobs([job('a', 1, 2), job('b', 1, 4), job('c', 2, 5)])
    expect(await queue.takeIds(1, 1)).toEqual(['a'])
    // The key of b is used up by a: it must not stand in the way of c.
    expect(await queue.takeIds(2, 1)).toEqual(['c'])
    await queue.putBack('g1', 1, [{ ...job('a', 1, 2), answer: 'busy' }])
    expect(await queue.takeIds(2, 1)).toEqual(['b'])
  })

  it('stay used by a job that is put back because its limit is full', async () => {
    const queue = await begin()
    await queue.lane(1, { limit: 50, free: '1' })
    await queue.worker(1)
    await queue.placeJobs([job('a')])
    await queue.takeIds(1, 1)
    await queue.putBack('g1', 1, [{ ...job('a'), answer: 'full' }])
    expect(await queue.takeIds(1, 1)).toEqual([])
    await queue.setSlots(queue.step(), 50, '1', null)
    expect(await queue.takeIds(1, 1)).toEqual(['a'])
  })

  it('are set less what is taken and not claimed, unless they changed meanwhile', async () => {
    const queue = await begin()
    await queue.lane(1, { limit: 50, free: '1' })
    await queue.worker(1)
    await queue.placeJobs([job('a'), job('b')])
    const turn = async () => (await queue.snapshot()).limits.get(50)?.turn ?? null
    const before = await turn()
    await queue.takeIds(1, 1)
    expect(await queue.setSlots(queue.step(), 50, '3', before)).toBe('CHANGED')
    expect(await queue.setSlots(queue.step(), 50, '3', await turn())).toBe('OK')
    expect((await queue.snapshot()).limits.get(50)?.free).toBe(2)
  })

  it('[D15] a lane without slots does not hide what stands behind it', async () => {
    const queue = await begin()
    await queue.lane(1, { hasLimits: true })
    for (let n = 2; n <= 60; n++)
      await queue.lane(n, { kind: 1, keyLimit: 100 + n, keyFree: n < 60 ? '0' : '1' })
    await queue.worker(1)
    await queue.placeJobs(Array.from({ length: 59 }, (_, n) => job(`j${100 + n}`, n, n + 2)))
    expect(await queue.takeIds(1, 1)).toEqual(['j158'])
  })

  it('a lane with a key is served when its kind was known before without one', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.worker(1)
    await queue.lane(2, { kind: 1, keyLimit: 60, keyFree: '1' })
    await queue.lane(3, { kind: 1 })
    await queue.placeJobs([job('a', 1, 2), job('b', 2, 3)])
    expect(await queue.takeIds(1, 5)).toEqual(['a', 'b'])
  })
})

describe('the edge', () => {
  /** Lane 1 holds a and b and goes on behind them, at 3; lane 2 holds one job before that and one behind. */
  const atEdge = async (width: number) => {
    const queue = await begin({ window: 4, width })
    await queue.worker(1, { tags: ['default', 'x'] })
    await queue.worker(2, { tags: ['x'] })
    await queue.refill(queue.step(), laneFacts(1), START, BOUND, [job('a', 1), job('b', 2)])
    await queue.lane(2, { tag: 'x' }, [job('y', 2, 2), job('z', 9, 2)])
    return queue
  }
  const BOUND = { score: '3', id: 'c' }

  it('[C7] [D15] nothing is taken from beyond the place where a lane goes on in Postgres', async () => {
    for (const width of [0, 1]) {
      const queue = await atEdge(width)
      const taken = await queue.takeIds(1, 9)
      expect(taken.sort()).toEqual(['a', 'b', 'y'])
      expect((await queue.snapshot()).idle).toContain(1)
      expect(await queue.takeIds(1, 9)).toEqual([])
      await queue.refill(queue.step(), laneFacts(1), BOUND, null, [job('c', 3)])
      expect(await queue.takeIds(1, 9)).toEqual(['c', 'z'])
      await redis.client.flushall()
    }
  })

  it('[S6] whoever stopped there is woken when the lane is read on, also if nothing was left in it', async () => {
    const queue = await atEdge(0)
    await queue.takeIds(1, 9)
    expect((await queue.snapshot()).idle).toEqual([1])
    await queue.refill(queue.step(), laneFacts(1), BOUND, null, [])
    expect((await queue.snapshot()).idle).toEqual([])
    expect(await queue.takeIds(1, 9)).toEqual(['z'])
  })

  it('[D15] is that of the lanes that a worker may serve', async () => {
    const queue = await atEdge(0)
    expect(await queue.takeIds(2, 9)).toEqual(['y', 'z'])
  })

  it('[D15] a lane under limits counts while it has slots, also those that this take gives out', async () => {
    const queue = await begin({ window: 4 })
    await queue.worker(1, { tags: ['default', 'x'] })
    const limited = laneFacts(1, { limit: 50, free: '2' })
    await queue.refill(queue.step(), limited, START, { score: '4', id: 'd' }, [
      job('a', 1),
      job('b', 2),
      job('c', 3),
    ])
    await queue.lane(2, { tag: 'x' }, [job('y', 8, 2), job('z', 9, 2)])
    // Both slots are given out: d, which comes next, could not run.
    expect(await queue.takeIds(1, 3)).toEqual(['a', 'b', 'y'])
    const freed = new Map([[1, 2]])
    expect(await queue.takeIds(1, 9, { freed })).toEqual(['c'])
    await queue.setSlots(queue.step(), 50, '0', null)
    expect(await queue.takeIds(1, 9)).toEqual(['z'])
  })

  it('[D14] balanced: a worker whose copies are beyond it takes what others hold before it', async () => {
    const queue = await begin({ width: 1, window: 4 })
    await queue.worker(1, { tags: ['default', 'x'] })
    await queue.lane(2, { tag: 'x' }, [job('z', 9, 2)])
    await queue.worker(2)
    await queue.refill(queue.step(), laneFacts(1), START, BOUND, [job('a', 1)])
    expect(await queue.queueOf(1)).toEqual(['z'])
    expect(await queue.queueOf(2)).toEqual(['a'])
    expect(await queue.takeIds(1, 2)).toEqual(['a'])
    expect(await queue.takeIds(1, 2)).toEqual([])
  })

  it('a take of nothing leaves its worker as it was', async () => {
    const queue = await atEdge(0)
    await queue.takeIds(1, 9)
    const before = await queue.snapshot()
    expect(await queue.takeIds(1, 0)).toEqual([])
    expect(await queue.snapshot()).toEqual(before)
    await queue.takeIds(2, 0)
    expect((await queue.snapshot()).idle).toEqual([1])
  })
})

describe('runs that end with the claim that follows', () => {
  const take = (limit: number, ending: [number, number][]) => ({
    generation: 'g1',
    worker: 1,
    limit,
    running: 1,
    freed: new Map(),
    ending: new Map(ending),
    done: [],
  })

  it('[D15] their slots are for jobs of the same lane, and the answer tells how many were used', async () => {
    const queue = await begin()
    await queue.lane(1, { hasLimits: true })
    await queue.lane(2, { kind: 1, keyLimit: 60, keyFree: '1' })
    await queue.lane(3, { kind: 1, keyLimit: 61, keyFree: '0' })
    await queue.worker(1)
    await queue.placeJobs([job('a', 1, 2), job('b', 2, 2), job('c', 3, 2), job('d', 1, 3), job('e', 4, 1)])
    const { ids, lanes, limited } = await queue.take(take(9, [[2, 1]]))
    expect(ids).toEqual(['a', 'b', 'e'])
    expect(lanes).toEqual([2, 2, 1])
    expect(limited).toEqual(new Map([[2, 1]]))
    expect((await queue.snapshot()).limits.get(60)?.free).toBe(0)
    // What was not used is as it was.
    expect((await queue.take(take(9, [[3, 2]]))).limited).toEqual(new Map([[3, 1]]))
    expect((await queue.snapshot()).limits.get(61)?.free).toBe(0)
  })

  it('[D15] a lane that they name counts for the edge', async () => {
    const queue = await begin({ window: 4 })
    await queue.worker(1, { tags: ['default', 'x'] })
    const limited = laneFacts(1, { limit: 50, free: '0' })
    await queue.refill(queue.step(), limited, START, { score: '2', id: 'b' }, [job('a', 1)])
    await queue.lane(2, { tag: 'x' }, [job('y', 8, 2), job('z', 9, 2)])
    expect((await queue.take(take(9, [[1, 2]]))).ids).toEqual(['a'])
    // As soon as they are used up, the lane holds nothing up.
    expect(await queue.takeIds(1, 1)).toEqual(['y'])
    expect((await queue.take(take(9, [[1, 1]]))).ids).toEqual([])
    expect((await queue.take(take(9, []))).ids).toEqual(['z'])
  })

  it('are nothing to a plain lane, or to one that the worker may not serve', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.lane(2, { tag: 'x', limit: 50, free: '0' })
    await queue.worker(1)
    await queue.placeJobs([job('a'), job('b', 2), job('c', 1, 2)])
    const ending: [number, number][] = [
      [1, 1],
      [2, 1],
      [7, 1],
    ]
    expect((await queue.take(take(9, ending))).ids).toEqual(['a', 'b'])
  })
})
