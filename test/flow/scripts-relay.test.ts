/** The relay’s steps are fenced, generations follow each other, and what a server does wrong leaves nothing half-written. */
import { afterEach, describe, expect, it, onTestFinished } from 'vitest'
import { beatChannel } from '../../src/redis/names.ts'
import { openRedis, type RedisStore } from '../../src/redis/open-redis.ts'
import { type Place, queueIndex, START } from '../../src/redis/queue-index.ts'
import { allScripts } from '../../src/redis/scripts.ts'
import { dropRedisUsers, makeRedisUsers } from '../support/acl.ts'
import { job, laneFacts, QUEUE, useQueues, useRedis } from '../support/redis.ts'
import { eventually } from '../support/signals.ts'

const redis = useRedis()
const begin = useQueues(redis)
const SPREAD = { width: 0, strategy: 'least-queue' } as const
const SIZES = { depth: 10, window: 10 }

describe('fences', () => {
  it('answer AGAIN to a step that was done, and do it once', async () => {
    const queue = await begin()
    await queue.lane(1)
    const step = queue.step()
    expect(await queue.place(step, 'relay', [job('a')])).toMatchObject({ code: 'OK', bells: 0, placed: 1 })
    await queue.worker(1)
    await queue.takeIds(1, 1, {})
    await queue.takeIds(1, 0, { done: ['a'] })
    expect(await queue.place(step, 'relay', [job('a')])).toMatchObject({ code: 'AGAIN', bells: 0, placed: 0 })
    expect(await queue.laneOf(1)).toEqual([])
  })

  it('answer LOST to a step of another generation, or out of its order', async () => {
    const queue = await begin()
    await queue.lane(1)
    const step = queue.step()
    for (const wrong of [
      { ...step, generation: 'g0' },
      { ...step, seq: step.seq + 1 },
      { ...step, seq: step.seq - 2 },
    ]) {
      expect((await queue.place(wrong, 'relay', [job('a')])).code).toBe('LOST')
      expect((await queue.remove(wrong, ['a'])).code).toBe('LOST')
      expect((await queue.refill(wrong, laneFacts(2), START, null, [])).code).toBe('LOST')
      expect(await queue.setSlots(wrong, 50, '1', null)).toBe('LOST')
      expect(await queue.setMode(wrong, { width: 1, strategy: 'random' })).toBe('LOST')
    }
    expect((await queue.snapshot()).seq).toBe(step.seq - 1)
    await redis.client.del(queue.root)
    expect((await queue.place(step, 'relay', [job('a')])).code).toBe('LOST')
  })

  it('answer FENCED to a leader whose term is over', async () => {
    const queue = await begin()
    await queue.lane(1)
    const { seq, generation } = await queue.snapshot()
    expect(await queue.adopt({ epoch: '3', generation, seq }, SIZES)).toEqual({ code: 'OK', seq, epoch: '3' })
    const step = queue.step()
    expect((await queue.place(step, 'relay', [job('a')])).code).toBe('FENCED')
    expect((await queue.beat(step, QUEUE, 1000)).code).toBe('FENCED')
    expect(await queue.adopt({ epoch: '2', generation, seq }, SIZES)).toMatchObject({
      code: 'FENCED',
      epoch: '3',
    })
    expect(await queue.beginGeneration('2', 'g2', SPREAD, SIZES)).toEqual({ code: 'FENCED', epoch: '3' })
    expect((await queue.place({ ...step, epoch: '3' }, 'relay', [job('a')])).code).toBe('OK')
  })

  it('let a new leader go on only with what Postgres says was done, or more', async () => {
    const queue = await begin()
    await queue.lane(1)
    const { seq, generation } = await queue.snapshot()
    expect((await queue.adopt({ epoch: '2', generation, seq: seq - 1 }, SIZES)).code).toBe('OK')
    expect((await queue.adopt({ epoch: '2', generation, seq: seq + 1 }, SIZES)).code).toBe('LOST')
    expect((await queue.adopt({ epoch: '2', generation: 'g0', seq }, SIZES)).code).toBe('LOST')
  })
})

describe('generations', () => {
  it('begin empty, and what the one before left is dropped a piece at a time', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.lane(2, { tag: 'x', limit: 50, free: '1' })
    await queue.lane(3, { tag: 'x', kind: 2, limit: 50, keyLimit: 60 })
    await queue.worker(1)
    await queue.worker(2, { tags: ['x'] })
    await queue.placeJobs([job('a'), job('b'), job('c', 1, 2), job('d', 1, 3)])
    await queue.takeIds(1, 1)
    await queue.takeIds(2, 5)
    expect(await queue.beginGeneration('1', 'g2', SPREAD, SIZES)).toEqual({ code: 'OK', before: 'g1' })
    expect((await queue.snapshot()).jobs.size).toBe(0)
    expect(await queue.dropGeneration('g2', 10)).toBe(false)
    let pieces = 1
    while (await queue.dropGeneration('g1', 2)) pieces++
    expect(pieces).toBe(3)
    const left = Object.keys(await queue.dump())
    expect(left.filter(key => key.startsWith(`${queue.root}:g1:`))).toEqual([])
  })

  it('leave no key that their sets do not list', async () => {
    const queue = await begin()
    await queue.lane(1, { hasLimits: true })
    await queue.lane(2, { kind: 1, keyLimit: 60 })
    await queue.worker(1)
    await queue.placeJobs([job('a', 1, 1), job('b', 1, 2), job('c', 1, 2), job('e', 1, 1)])
    await queue.takeIds(1, 2)
    const names = Object.keys(await queue.dump()).map(key => key.replace(`${queue.root}:g1:`, ''))
    const known =
      /^(jobs|held|taken|slots|turns|low|idle|open|workers|kinds|kind-sizes|lanes|bounded|full|(lane|lane-facts|heads|workers-of|worker|queue|under):\d+)$/
    expect(names.filter(name => name !== queue.root && !known.test(name))).toEqual([])
  })
})

describe('beats', () => {
  it('tell the workers who leads, and the relay what it should look after', async () => {
    const queue = await begin({ window: 4 })
    await queue.lane(1, { limit: 50, free: '1' })
    await queue.worker(1)
    await queue.placeJobs(['a', 'b', 'c', 'd', 'e'].map((id, n) => job(id, n)))
    await queue.takeIds(1, 1)
    await queue.placeJobs([])
    const listener = redis.client.duplicate()
    onTestFinished(() => listener.disconnect())
    const beats: string[] = []
    listener.on('message', (_, text: string) => beats.push(text))
    await listener.subscribe(beatChannel(redis.deployment))
    const { seq } = await queue.snapshot()
    const step = { epoch: '1', generation: 'g1', seq }
    expect(await queue.beat(step, QUEUE, -1)).toEqual({
      code: 'OK',
      overdue: ['a'],
      fullLimits: [{ limit: 50, turn: '1' }],
      lowLanes: [],
      queued: 3,
      taken: 1,
      bells: 0,
    })
    await expect.poll(() => beats).toEqual([`g1 ${QUEUE}`])
    expect((await queue.beat(step, QUEUE, 60_000)).overdue).toEqual([])
    expect((await queue.beat({ ...step, seq: seq + 1 }, QUEUE, 0)).code).toBe('LOST')
  })

  it('[X12] cost what is in use: not what limits without waiting jobs there are', async () => {
    const queue = await begin()
    await queue.lane(1, { hasLimits: true })
    await queue.worker(1)
    const beat = async () => {
      const { seq } = await queue.snapshot()
      await redis.client.config('RESETSTAT')
      const { fullLimits } = await queue.beat({ epoch: '1', generation: 'g1', seq }, QUEUE, 60_000)
      const stats = [...(await redis.client.info('commandstats')).matchAll(/^cmdstat_(\w+):calls=(\d+)/gm)]
      const calls = stats
        .map(([, name, count]) => `${name} ${count}`)
        .filter(call => !call.startsWith('config'))
      return { fullLimits, calls: calls.sort() }
    }
    const without = await beat()
    for (let key = 0; key < 100; key++)
      await queue.lane(10 + key, { kind: 1, keyLimit: 1000 + key, keyFree: '1' })
    expect(await beat()).toEqual(without)
    // All slots are taken, and nobody waits for them; then one job does.
    const jobs = Array.from({ length: 100 }, (_, key) => job(`j${key}`, 1, 10 + key))
    await queue.placeJobs(jobs)
    expect(await queue.takeIds(1, 100)).toHaveLength(100)
    await queue.takeIds(1, 0, { done: jobs.map(({ id }) => id) })
    expect((await queue.snapshot()).full).toHaveLength(100)
    expect((await beat()).fullLimits).toEqual([])
    await queue.placeJobs([job('waits', 1, 17)])
    expect((await beat()).fullLimits).toEqual([{ limit: 1007, turn: '1' }])
    // A slot that is free again is not among them.
    await queue.takeIds(1, 0, { freed: new Map(jobs.map(({ lane }) => [lane, 1])) })
    expect((await queue.snapshot()).full).toEqual([])
  })

  it('[S6] wake a worker again whose bell was lost', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.worker(1)
    await queue.takeIds(1, 1)
    expect((await queue.placeJobs([job('a')])).bells).toBe(1)
    const { seq } = await queue.snapshot()
    const bells = async () => (await queue.beat({ epoch: '1', generation: 'g1', seq }, QUEUE, 0)).bells
    expect([await bells(), await bells()]).toEqual([0, 0]) // it may still be on its way
    await redis.client.zadd(`${queue.root}:g1:rung`, '1', '1') // long ago
    expect([await bells(), await bells(), await bells()]).toEqual([0, 1, 0])
    // It came: there is nothing to ring for.
    await redis.client.zadd(`${queue.root}:g1:rung`, '1', '1')
    expect(await queue.takeIds(1, 1)).toEqual(['a'])
    expect([await bells(), await bells()]).toEqual([0, 0])
  })
})

describe('pages of a lane', () => {
  it('[D15] go on from any place, also among thousands of equal scores', async () => {
    const queue = await begin({ window: 5000 })
    await queue.lane(1)
    const ids = Array.from({ length: 3000 }, (_, n) => `j${10_000 + n}`)
    for (let first = 0; first < ids.length; first += 1000)
      await queue.placeJobs(ids.slice(first, first + 1000).map(id => job(id, 7)))
    await queue.placeJobs([job('first', 6), job('last', 8)])
    const read: string[] = []
    let from: Place = START
    for (;;) {
      const { jobs } = await queue.lanePage('g1', 1, from, 401)
      read.push(...jobs.slice(0, 400).map(({ id }) => id))
      const next = jobs[400]
      if (!next) break
      from = next
    }
    expect(read).toEqual(['first', ...ids, 'last'])
    expect((await queue.lanePage('g1', 1, { score: '7', id: 'j10001x' }, 1)).jobs).toEqual([
      { id: 'j10002', score: '7' },
    ])
    expect((await queue.lanePage('g0', 1, START, 1)).code).toBe('LOST')
    expect((await queue.lanePage('g1', 9, START, 1)).code).toBe('UNKNOWN')
  })
})

describe('a server', () => {
  afterEach(() => redis.client.config('SET', 'maxmemory', '0'))

  it('that forgot the scripts is given them again', async () => {
    const queue = await begin()
    await queue.lane(1)
    await redis.client.script('FLUSH')
    expect((await queue.placeJobs([job('a')])).placed).toBe(1)
    await redis.client.script('FLUSH')
    await queue.worker(1)
    expect(await queue.takeIds(1, 1)).toEqual(['a'])
  })

  it('[X15] that has forgotten its scripts gets all of them from the relay, and none from a worker, which says so', async () => {
    const queue = await begin()
    await queue.lane(1)
    await queue.placeJobs([job('a')])
    const users = await makeRedisUsers(redis.server.url, redis.deployment)
    const [worker, relay] = (['worker', 'relay'] as const).map(role =>
      openRedis(users[role], () => undefined, { mayLoad: role === 'relay' }),
    ) as [RedisStore, RedisStore]
    onTestFinished(() => {
      for (const store of [worker, relay]) store.close()
    })
    await eventually('both are connected', async () => worker.isConnected() && relay.isConnected())
    const register = () =>
      queueIndex(worker, redis.deployment, QUEUE).register('g1', 1, {
        tasks: ['task'],
        tags: ['default'],
        constraintTags: ['c:'],
      })
    const beat = () =>
      queueIndex(relay, redis.deployment, QUEUE).beat({ ...queue.step(), seq: 2 }, QUEUE, 5000)
    const shas = [...allScripts().values()].map(({ sha }) => sha)
    const known = async () => ((await redis.client.script('EXISTS', ...shas)) as number[]).filter(Boolean)
    await redis.client.script('FLUSH')
    await expect(register()).rejects.toMatchObject({
      code: 'STORE_UNAVAILABLE',
      message: expect.stringMatching(/The relay that leads loads its own.*start or upgrade the relay/),
    })
    expect(await known()).toEqual([])
    expect(await beat()).toMatchObject({ code: 'OK', queued: 1 })
    expect(await known()).toHaveLength(shas.length)
    expect(await register()).toBe('OK')
    expect(await dropRedisUsers(users, redis.server.url)).toEqual([])
  })

  it('whose memory is full refuses what adds, wholly, and lets jobs out', async () => {
    const queue = await begin({ width: 1 })
    await queue.lane(1)
    await queue.worker(1)
    await queue.worker(2)
    await queue.placeJobs([job('a', 1), job('b', 2), job('c', 3), job('d', 4)])
    const before = await queue.dump()
    await redis.client.config('SET', 'maxmemory', '1')
    const step = queue.step()
    await expect(queue.place(step, 'relay', [job('e')])).rejects.toThrow(/OOM/)
    await expect(queue.hint([job('e')])).rejects.toThrow(/OOM/)
    await expect(queue.refill(step, laneFacts(2), START, null, [])).rejects.toThrow(/OOM/)
    await expect(queue.worker(3)).rejects.toThrow(/OOM/)
    expect(await queue.dump()).toEqual(before)

    expect(await queue.takeIds(1, 1)).toEqual(['a'])
    expect((await queue.remove(step, ['b'])).removed).toBe(1)
    expect(await queue.unregister(1)).toEqual(['a'])
    await expect(queue.putBack('g1', 1, [{ ...job('a'), answer: 'busy' }])).rejects.toThrow(/OOM/)
    expect(await queue.takeIds(2, 5)).toEqual(['c', 'd'])
    await redis.client.config('SET', 'maxmemory', '0')
    expect((await queue.placeJobs([job('e')])).placed).toBe(1)
  })
})
