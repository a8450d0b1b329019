/** Ready jobs become known in Redis: placed by the relay, hinted by others, changed, removed. */
import { describe, expect, it } from 'vitest'
import { auditIndex } from '../../src/redis/audit-index.ts'
import { isName, job, laneFacts, QUEUE, useQueues, useRedis } from '../support/redis.ts'

const redis = useRedis()
const begin = useQueues(redis)

/** How often a command ran while `work` did, calls of scripts included. */
async function countCalls(work: () => Promise<unknown>): Promise<Map<string, number>> {
  await redis.client.config('RESETSTAT')
  await work()
  const info = await redis.client.info('commandstats')
  return new Map(
    [...info.matchAll(/^cmdstat_(\S+?):calls=(\d+)/gm)].map(([, name, calls]) => [
      String(name),
      Number(calls),
    ]),
  )
}

describe('copies', () => {
  it('[D2] fanout copies a job into the queue of every worker that may run it', async () => {
    const queue = await begin()
    await queue.lane(1)
    for (const worker of [1, 2, 3]) await queue.worker(worker)
    await queue.worker(4, { tags: ['other'] })
    await queue.placeJobs([job('a')])
    const { held, jobs } = await queue.snapshot()
    expect(held.get('a')).toEqual([1, 2, 3])
    expect(jobs.get('a')).toEqual({ lane: 1, score: '1', leaseToken: '0' })
    expect(await queue.queueOf(4)).toEqual([])
  })

  it('[D2] balanced copies a job into exactly one queue', async () => {
    const queue = await begin({ width: 1 })
    await queue.lane(1)
    for (const worker of [1, 2, 3]) await queue.worker(worker)
    await queue.placeJobs(['a', 'b', 'c', 'd'].map(id => job(id)))
    const { held } = await queue.snapshot()
    expect([...held.values()].map(holders => holders.length)).toEqual([1, 1, 1, 1])
  })

  it('[D2] a full queue takes a better job and lets its tail go, which stays in its lane', async () => {
    const queue = await begin({ depth: 2 })
    await queue.lane(1)
    await queue.worker(1)
    await queue.placeJobs([job('b', 2), job('d', 4), job('c', 3), job('a', 1)])
    expect(await queue.queueOf(1)).toEqual(['a', 'b'])
    expect(await queue.laneOf(1)).toEqual(['a', 'b', 'c', 'd'])
    expect((await queue.snapshot()).workers.get(1)?.bound).toEqual({ score: '3', id: 'c' })
    expect(await queue.takeIds(1, 10)).toEqual(['a', 'b', 'c', 'd'])
  })

  it('[C2] [C6] task, tag and constraint tag must all be what the worker has', async () => {
    const queue = await begin()
    let lane = 0
    for (const task of ['t', 'u'])
      for (const tag of ['x', 'y'])
        for (const constraintTag of ['c:', 'c:gpu=a100', 'c:gpu=h100']) {
          await queue.lane(++lane, { task, tag, constraintTag })
          // Of the eight possible halves of a match only the whole one counts.
          await queue.worker(lane, {
            tasks: [task],
            tags: [tag, 'z'],
            constraintTags: [constraintTag, 'c:gpu=z'],
          })
        }
    await queue.placeJobs(
      Array.from({ length: lane }, (_, n) => job(`job ${n + 1}`.replace(' ', ''), 1, n + 1)),
    )
    for (let worker = 1; worker <= lane; worker++)
      expect(await queue.queueOf(worker)).toEqual([`job${worker}`])
  })

  it('[D3] a batch of 1,000 is one call', async () => {
    const queue = await begin({ depth: 1000, window: 1000 })
    await queue.lane(1)
    for (let worker = 1; worker <= 5; worker++) await queue.worker(worker)
    const jobs = Array.from({ length: 1000 }, (_, n) => job(`j${1000 + n}`, n % 7))
    const calls = await countCalls(async () => {
      expect((await queue.placeJobs(jobs)).placed).toBe(1000)
    })
    expect((calls.get('evalsha') ?? 0) + (calls.get('eval') ?? 0)).toBe(1)
    expect((await queue.snapshot()).held.size).toBe(1000)
    expect(await queue.takeIds(3, 1000)).toHaveLength(1000)
  })

  it('[D6] removing a job touches its lane and the queues that hold it, of fifty', async () => {
    const queue = await begin({ width: 3 })
    await queue.lane(1)
    for (let worker = 1; worker <= 50; worker++) await queue.worker(worker)
    await queue.placeJobs([job('a')])
    await queue.remove(queue.step(), ['loads the script'])
    const calls = await countCalls(() => queue.remove(queue.step(), ['a']))
    expect(calls.get('zrem')).toBe(1 + 3)
    const all = [...calls].filter(([name]) => !name.startsWith('config') && name !== 'info')
    expect(all.reduce((sum, [, count]) => sum + count, 0)).toBeLessThan(20)
    expect((await queue.snapshot()).held.size).toBe(0)
  })
})

describe('changes', () => {
  it('[D9] another place in the order moves the job in its lane and in every queue', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.worker(1)
    await queue.worker(2)
    await queue.placeJobs([job('a', 1), job('b', 2)])
    await queue.placeJobs([job('a', 3)])
    for (const worker of [1, 2]) expect(await queue.queueOf(worker)).toEqual(['b', 'a'])
    expect(await queue.laneOf(1)).toEqual(['b', 'a'])
  })

  it('[D9] another lane moves the job to the workers that serve that one', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.lane(2, { constraintTag: 'c:gpu=a100' })
    await queue.worker(1)
    await queue.worker(2, { constraintTags: ['c:gpu=a100'] })
    await queue.placeJobs([job('a', 1, 1)])
    await queue.placeJobs([job('a', 1, 2)])
    expect(await queue.queueOf(1)).toEqual([])
    expect(await queue.queueOf(2)).toEqual(['a'])
    expect(await queue.laneOf(1)).toEqual([])
  })

  it('[D9] a job whose new lane is not read in leaves Redis, and the relay is asked to read it', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.worker(1)
    await queue.placeJobs([job('a', 1, 1)])
    expect((await queue.placeJobs([job('a', 1, 7)])).placed).toBe(0)
    const { jobs, low } = await queue.snapshot()
    expect(jobs.size).toBe(0)
    expect(low).toEqual([7])
  })

  it('[D5] the reverse index follows place, change, take and removal', async () => {
    const queue = await begin({ depth: 2 })
    await queue.lane(1)
    await queue.worker(1)
    await queue.worker(2)
    await queue.placeJobs([job('a', 1), job('b', 2), job('c', 3)])
    const held = async () => Object.fromEntries((await queue.snapshot()).held)
    expect(await held()).toEqual({ a: [1, 2], b: [1, 2] })
    await queue.placeJobs([job('c', 0)])
    expect(await held()).toEqual({ a: [1, 2], c: [1, 2] })
    await queue.remove(queue.step(), ['a'])
    expect(await held()).toEqual({ c: [1, 2] })
    await queue.takeIds(2, 1)
    expect(await held()).toEqual({})
  })
})

describe('hints', () => {
  it('add what is absent, and change nothing that is known', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.placeJobs([job('a', 5)])
    expect(await queue.hint([job('a', 1), job('b', 2)])).toMatchObject({ code: 'OK', placed: 1 })
    expect(await queue.laneOf(1)).toEqual(['b', 'a'])
  })

  it('are late when the job is taken with the same or a later token, and right when it is ready again', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.worker(1)
    await queue.placeJobs([job('a', 1, 1, '5')])
    await queue.takeIds(1, 1)
    expect((await queue.hint([job('a', 1, 1, '4')])).placed).toBe(0)
    expect((await queue.hint([job('a', 1, 1, '5')])).placed).toBe(0)
    expect((await queue.placeJobs([job('a', 1, 1, '5')])).placed).toBe(0)
    expect((await queue.hint([job('a', 1, 1, '6')])).placed).toBe(1)
    expect((await queue.snapshot()).taken.size).toBe(0)
  })

  it('say nothing of lanes that are not read in', async () => {
    const queue = await begin()
    expect((await queue.hint([job('a', 1, 9)])).placed).toBe(0)
    expect((await queue.snapshot()).low).toEqual([])
  })

  it('are lost before a generation has begun', async () => {
    const queue = await begin()
    await redis.client.del(queue.root)
    expect((await queue.hint([job('a')])).code).toBe('LOST')
  })
})

describe('windows', () => {
  it('[D15] a lane holds the best of its jobs up to its bound, and says when it runs low', async () => {
    const queue = await begin({ window: 4 })
    await queue.lane(1)
    await queue.worker(1)
    const jobs = [5, 3, 8, 1, 7, 2, 6, 4].map(n => job(`j${n}`, n))
    await queue.placeJobs(jobs)
    expect(await queue.laneOf(1)).toEqual(['j1', 'j2', 'j3', 'j4'])
    expect((await queue.snapshot()).lanes.get(1)?.bound).toEqual({ score: '5', id: 'j5' })
    expect((await queue.placeJobs([job('j9', 9), job('j5', 5)])).placed).toBe(0)
    expect((await queue.snapshot()).low).toEqual([])
    expect(await queue.takeIds(1, 3)).toEqual(['j1', 'j2', 'j3'])
    expect((await queue.snapshot()).low).toEqual([1])

    const rest = [job('j5', 5), job('j6', 6), job('j7', 7)]
    const read = await queue.refill(
      queue.step(),
      laneFacts(1),
      { score: '5', id: 'j5' },
      { score: '8', id: 'j8' },
      rest,
    )
    expect(read).toEqual({ code: 'OK', bound: { score: '8', id: 'j8' } })
    expect((await queue.snapshot()).low).toEqual([])
    expect(await queue.takeIds(1, 9)).toEqual(['j4', 'j5', 'j6', 'j7'])
  })

  it('[D15] what was read behind another bound is not taken in', async () => {
    const queue = await begin({ window: 2 })
    await queue.lane(1)
    await queue.placeJobs([job('a', 1), job('c', 3), job('d', 4)])
    await queue.placeJobs([job('b', 2)])
    const read = await queue.refill(queue.step(), laneFacts(1), { score: '4', id: 'd' }, null, [job('d', 4)])
    expect(read).toEqual({ code: 'MOVED', bound: { score: '3', id: 'c' } })
    expect(await queue.laneOf(1)).toEqual(['a', 'b'])
  })

  it('[D15] a full lane that nobody serves leaves others alone', async () => {
    const queue = await begin({ window: 10, depth: 10 })
    await queue.lane(1, { tag: 'nobody' })
    await queue.lane(2)
    await queue.worker(1)
    await queue.placeJobs(Array.from({ length: 500 }, (_, n) => job(`n${1000 + n}`, 0, 1)))
    await queue.placeJobs([job('a', 9, 2)])
    expect((await queue.snapshot()).jobs.size).toBe(11)
    expect(await queue.takeIds(1, 5)).toEqual(['a'])
  })

  it('[D15] what is pushed out of its lane leaves the queues too', async () => {
    const queue = await begin({ window: 2 })
    await queue.lane(1)
    await queue.worker(1)
    await queue.placeJobs([job('b', 2), job('c', 3), job('a', 1)])
    expect(await queue.queueOf(1)).toEqual(['a', 'b'])
  })

  it('[C7] scores keep all their digits on every way', async () => {
    const [last, before] = [String(Number.MAX_SAFE_INTEGER), String(Number.MAX_SAFE_INTEGER - 1)]
    const queue = await begin({ window: 2, depth: 1 })
    await queue.lane(1)
    await queue.worker(1)
    await queue.placeJobs([job('a', last), job('b', last), job('c', before)])
    const { lanes, workers } = await queue.snapshot()
    expect(lanes.get(1)?.jobs).toEqual([
      { id: 'c', score: before },
      { id: 'a', score: last },
    ])
    expect(lanes.get(1)?.bound).toEqual({ id: 'b', score: last })
    expect(workers.get(1)?.bound).toEqual({ id: 'a', score: last })
    await queue.takeIds(1, 1)
    expect((await queue.snapshot()).taken.get('c')?.score).toBe(before)
    const read = await queue.refill(queue.step(), laneFacts(1), { score: last, id: 'b' }, null, [
      job('b', last),
    ])
    expect(read).toEqual({ code: 'OK', bound: null })
    expect(await queue.takeIds(1, 5)).toEqual(['a', 'b'])
  })
})

describe('the audit', () => {
  it('[D5] sees a copy that the reverse index does not know, and a job without a home', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.worker(1)
    await queue.placeJobs([job('a'), job('b')])
    const violated = async () =>
      new Set(
        (await auditIndex(redis.store, redis.deployment, QUEUE, isName)).map(({ invariant }) => invariant),
      )
    await redis.client.hdel(`${queue.root}:g1:held`, 'a')
    expect(await violated()).toEqual(new Set(['reverse index', 'complete']))
    await redis.client.hset(`${queue.root}:g1:held`, 'a', '1')
    await redis.client.zrem(`${queue.root}:g1:lane:1`, 'b')
    expect(await violated()).toEqual(new Set(['one home']))
    await redis.client.zadd(`${queue.root}:g1:lane:1`, '1', 'b')
    await redis.client.sadd(`${queue.root}:g1:bounded`, '1')
    expect(await violated()).toEqual(new Set(['bounded']))
    await redis.client.srem(`${queue.root}:g1:bounded`, '1')
    expect(await violated()).toEqual(new Set())
  })
})
