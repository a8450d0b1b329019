/** What Postgres does not have any more leaves nothing in Redis, and what is left goes on as if it had never been there. */
import { describe, expect, it } from 'vitest'
import { job, QUEUE, useQueues, useRedis } from '../support/redis.ts'

const redis = useRedis()
const begin = useQueues(redis)

/** Without what counts steps. */
const content = async (queue: Awaited<ReturnType<typeof begin>>) => {
  const { [queue.root]: _, ...keys } = await queue.dump()
  return keys
}

/** A kind with lanes of keys under limits, beside a plain one that stays. */
const open = async () => {
  const queue = await begin()
  await queue.lane(1)
  await queue.worker(7)
  const before = await content(queue)
  const keyed = { kind: 2, task: 'task', limit: 50, free: '5', isPlain: false, hasLimits: true }
  const make = async () => {
    await queue.lane(2, keyed)
    await queue.lane(3, { ...keyed, keyLimit: 60, keyFree: '1' })
    await queue.lane(4, { ...keyed, keyLimit: 61, keyFree: '0' })
  }
  await make()
  return { queue, before, make }
}

describe('forgetting lanes', () => {
  it('[X12] leaves nothing of a kind and its limits when its last lane goes, and it can come again', async () => {
    const { queue, before, make } = await open()
    const with_them = await content(queue)
    expect(await queue.forgetLanes(queue.step(), [3])).toBe('OK')
    const { lanes, limits } = await queue.snapshot()
    expect([...lanes.keys()]).toEqual([1, 2, 4])
    expect([...limits.keys()]).toEqual([50, 61])
    await queue.forgetLanes(queue.step(), [4, 2, 99])
    const left = await content(queue)
    // An empty list of kinds, where there was none before.
    const worker = `${queue.root}:g1:worker:7`
    expect(left).toEqual({ ...before, [worker]: { ...(before[worker] as object), limited: '' } })
    await make()
    expect(await content(queue)).toEqual(with_them)
  })

  it('[X12] takes what still stands there out of every queue, and workers go on', async () => {
    const { queue } = await open()
    await queue.lane(5, { tag: 'default', task: 'task', kind: 5 })
    await queue.placeJobs([job('a', 1, 5), job('b', 2, 3), job('c', 3, 1), job('d', 4, 2)])
    expect(await queue.queueOf(7)).toContain('a')
    await queue.forgetLanes(queue.step(), [5, 3])
    expect([...(await queue.snapshot()).jobs.keys()].sort()).toEqual(['c', 'd'])
    expect((await queue.takeIds(7, 10)).sort()).toEqual(['c', 'd'])
  })

  it('[X12] [X14] does no harm to a worker that still names a lane: what it puts back is wanted from the relay', async () => {
    const { queue } = await open()
    await queue.placeJobs([job('b', 2, 3)])
    expect(await queue.takeIds(7, 1)).toEqual(['b'])
    await queue.forgetLanes(queue.step(), [3])
    await queue.putBack('g1', 7, [{ id: job('b').id, answer: 'unclear' }])
    await queue.takeIds(7, 0, { freed: new Map([[3, 1]]) })
    expect((await queue.beat({ ...queue.step(), seq: 6 }, QUEUE, 5000)).lowLanes).toEqual([3])
    await queue.forgetLanes({ epoch: '1', generation: 'g1', seq: 7 }, [3])
    expect((await queue.snapshot()).low).toEqual([])
  })

  it('[X12] is a step: of whoever leads, in its order, once', async () => {
    const { queue } = await open()
    const step = queue.step()
    expect(await queue.forgetLanes({ ...step, seq: step.seq + 1 }, [3])).toBe('LOST')
    expect(await queue.forgetLanes({ ...step, generation: 'g0' }, [3])).toBe('LOST')
    expect(await queue.forgetLanes(step, [3])).toBe('OK')
    expect(await queue.forgetLanes(step, [4])).toBe('AGAIN')
    expect([...(await queue.snapshot()).lanes.keys()]).toEqual([1, 2, 4])
    expect(await queue.forgetLimits(step, [61])).toBe('AGAIN')
    expect(await queue.forgetLimits({ ...queue.step(), generation: 'g0' }, [61])).toBe('LOST')
    expect(await queue.endGeneration({ ...step, generation: 'g0' })).toBe('LOST')
    expect(await queue.endGeneration({ ...step, epoch: '0' })).toBe('FENCED')
  })
})

describe('forgetting limits of keys', () => {
  it('[X12] forgets the lanes under them, and wants those again that have jobs', async () => {
    const { queue } = await open()
    await queue.placeJobs([job('b', 2, 3)])
    await queue.forgetLimits(queue.step(), [60, 61, 99])
    const { lanes, limits, low } = await queue.snapshot()
    expect([...lanes.keys()]).toEqual([1, 2])
    expect([...limits.keys()]).toEqual([50])
    expect(low).toEqual([3])
    await queue.lane(3, { kind: 2, limit: 50, keyLimit: 62, isPlain: false, hasLimits: true }, [
      job('b', 2, 3),
    ])
    expect(await queue.takeIds(7, 1)).toEqual(['b'])
  })

  it('[X12] leaves the limit of a task to its lanes', async () => {
    const { queue } = await open()
    await queue.forgetLimits(queue.step(), [50])
    expect([...(await queue.snapshot()).limits.keys()]).toEqual([50, 60, 61])
  })
})

describe('ending a generation', () => {
  it('[X12] leaves no key when it is dropped', async () => {
    const { queue } = await open()
    await queue.placeJobs([job('a'), job('b', 2, 3)])
    await queue.takeIds(7, 1)
    expect(await queue.endGeneration(queue.step())).toBe('OK')
    expect(
      await queue.register('g1', 8, { tasks: ['task'], tags: ['default'], constraintTags: ['c:'] }),
    ).toBe('LOST')
    expect((await queue.hint([job('x')])).code).toBe('LOST')
    while (await queue.dropGeneration('g1', 2));
    expect(await queue.dump()).toEqual({})
  })
})
