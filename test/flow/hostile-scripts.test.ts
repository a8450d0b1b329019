/**
 * The scripts, through their typed calls, given what Postgres would never tell: refused before anything is written, or answered so
 * that what Redis holds keeps its rules. And names that could be mistaken for keys, patterns or other names.
 */
import fc from 'fast-check'
import { afterEach, describe, expect, it } from 'vitest'
import { auditIndex } from '../../src/redis/audit-index.ts'
import { rootKey } from '../../src/redis/names.ts'
import { queueIndex, START } from '../../src/redis/queue-index.ts'
import { always, label } from '../support/hostile.ts'
import {
  isName,
  job,
  laneFacts,
  openQueue,
  QUEUE,
  type TestQueue,
  useQueues,
  useRedis,
} from '../support/redis.ts'

const redis = useRedis()
const useQueue = useQueues(redis)

// biome-ignore lint/suspicious/noExplicitAny: whatever a caller without types may pass
type Any = any

const WRONG: readonly Any[] = [
  ...[Number.NaN, Number.POSITIVE_INFINITY, -1, 1.5, 1e21, 2 ** 53, -0, null, undefined, true, 10n, [], {}],
  ...[
    '',
    ' ',
    '-1',
    '+1',
    '0x10',
    '1e3',
    'nan',
    'inf',
    '1 2',
    '1,2',
    '٣',
    'a\nb',
    '*',
    '{}',
    "'",
    '\\',
    '\u0000',
  ],
  ...['\ud800', '9'.repeat(16), '9'.repeat(17), 'x'.repeat(10_000), '__proto__', 'OK', 'default'],
]
const wrong = fc.constantFrom(...WRONG)

/** One call of each kind, with `bad` in one place and what is right in the others. */
const CALLS: Readonly<Record<string, (queue: TestQueue, bad: Any) => Promise<unknown>>> = {
  'place: id': (queue, bad) => queue.place(queue.step(), 'relay', [job('m'), job(bad)]),
  'place: lane': (queue, bad) => queue.place(queue.step(), 'relay', [job('m'), job('n', 1, bad)]),
  'place: score': (queue, bad) => queue.place(queue.step(), 'relay', [job('m'), { ...job('n'), score: bad }]),
  'place: token': (queue, bad) => queue.place(queue.step(), 'audit', [job('m'), job('n', 1, 1, bad)]),
  'place: how': (queue, bad) => queue.place(queue.step(), bad, [job('m')]),
  'place: epoch': (queue, bad) => queue.place({ ...queue.step(), epoch: bad }, 'relay', [job('m')]),
  'place: seq': (queue, bad) => queue.place({ ...queue.step(), seq: bad }, 'relay', [job('m')]),
  'place: generation': (queue, bad) => queue.place({ ...queue.step(), generation: bad }, 'relay', []),
  'hint: lane': (queue, bad) => queue.hint([job('m'), job('n', 1, bad)]),
  'hint: score': (queue, bad) => queue.hint([job('m'), { ...job('n'), score: bad }]),
  remove: (queue, bad) => queue.remove(queue.step(), ['a', bad]),
  'take: worker': (queue, bad) => queue.take({ ...TAKE, worker: bad }),
  'take: limit': (queue, bad) => queue.take({ ...TAKE, limit: bad }),
  'take: running': (queue, bad) => queue.take({ ...TAKE, running: bad }),
  'take: freed': (queue, bad) => queue.take({ ...TAKE, freed: new Map([[2, bad]]) }),
  'take: freed lane': (queue, bad) => queue.take({ ...TAKE, freed: new Map([[bad, 0]]) }),
  'take: ending': (queue, bad) => queue.take({ ...TAKE, ending: new Map([[bad, 1]]) }),
  'take: straight': (queue, bad) => queue.take({ ...TAKE, straight: bad }),
  'take: done': (queue, bad) => queue.take({ ...TAKE, done: ['t', bad] }),
  'take: generation': (queue, bad) => queue.take({ ...TAKE, generation: bad }),
  'put back: id': (queue, bad) => queue.putBack('g1', 1, [{ ...job(bad), answer: 'busy' }]),
  'put back: score': (queue, bad) => queue.putBack('g1', 1, [{ ...job('t'), score: bad, answer: 'moved' }]),
  'put back: answer': (queue, bad) => queue.putBack('g1', 1, [{ ...job('t'), answer: bad }]),
  'register: worker': (queue, bad) => queue.register('g1', bad, FACTS),
  'register: a task': (queue, bad) => queue.register('g1', 3, { ...FACTS, tasks: [bad] }),
  'register: tags': (queue, bad) => queue.register('g1', 3, { ...FACTS, tags: bad }),
  unregister: (queue, bad) => queue.unregister(bad),
  'refill: lane': (queue, bad) => queue.refill(queue.step(), laneFacts(bad, { kind: 9 }), START, null, []),
  'refill: kind': (queue, bad) => queue.refill(queue.step(), laneFacts(9, { kind: bad }), START, null, []),
  'refill: task': (queue, bad) => queue.refill(queue.step(), laneFacts(9, { task: bad }), START, null, []),
  'refill: free': (queue, bad) =>
    queue.refill(queue.step(), laneFacts(9, { limit: 9, free: bad }), START, null, [job('z', 1, 9)]),
  'refill: from': (queue, bad) =>
    queue.refill(queue.step(), laneFacts(1), { score: bad, id: '' }, null, [job('m')]),
  'refill: bound': (queue, bad) =>
    queue.refill(queue.step(), laneFacts(9), START, { score: bad, id: 'q' }, [job('m', 1, 9)]),
  'set slots: limit': (queue, bad) => queue.setSlots(queue.step(), bad, '1', null),
  'set slots: free': (queue, bad) => queue.setSlots(queue.step(), 7, bad, null),
  'set slots: turn': (queue, bad) => queue.setSlots(queue.step(), 7, '1', bad),
  'set mode: width': (queue, bad) => queue.setMode(queue.step(), { width: bad, strategy: 'random' }),
  'set mode: strategy': (queue, bad) => queue.setMode(queue.step(), { width: 1, strategy: bad }),
  'begin: epoch': (queue, bad) => queue.beginGeneration(bad, 'g2', { width: 0, strategy: 'random' }, SIZES),
  'begin: depth': (queue, bad) =>
    queue.beginGeneration('1', 'g2', { width: 0, strategy: 'random' }, { ...SIZES, depth: bad }),
  'adopt: window': (queue, bad) => queue.adopt(queue.step(), { ...SIZES, window: bad }),
  beat: (queue, bad) => queue.beat({ ...queue.step(), seq: bad }, QUEUE, 1000),
  'beat: overdue': (queue, bad) => queue.beat(queue.step(), QUEUE, bad),
  'lane page: from': (queue, bad) => queue.lanePage('g1', 1, { score: bad, id: bad }, 10),
  'lane page: most': (queue, bad) => queue.lanePage('g1', 1, START, bad),
  'drop: most': (queue, bad) => queue.dropGeneration('g0', bad),
}
const SIZES = { depth: 10, window: 10 }
const TAKE = { generation: 'g1', worker: 1, limit: 1, running: 0, freed: new Map(), done: [] }
const FACTS = { tasks: ['task'], tags: ['default'], constraintTags: ['c:'] }

describe('scripts', () => {
  it('refuse what makes no sense before they write, or answer it and keep the rules', async () => {
    let refused = 0
    let rounds = 0
    const calls = fc.tuple(fc.constantFrom(...Object.keys(CALLS)), wrong)
    await always(
      'scripts',
      200,
      fc.asyncProperty(calls, async ([name, bad]) => {
        const deployment = `${redis.deployment}-${rounds++}`
        const queue = await openQueue(redis, deployment)
        await queue.lane(1, {}, [job('a', 1), job('b', 2)])
        await queue.lane(2, { limit: 7, free: '2' }, [job('c', 1, 2), job('d', 2, 2)])
        await queue.worker(1)
        await queue.worker(2)
        await queue.placeJobs([job('t', 0)])
        expect(await queue.takeIds(1, 1)).toEqual(['t'])
        const before = await queue.dump()
        try {
          await CALLS[name]?.(queue, bad)
        } catch (error) {
          refused++
          expect(String(error), name).toMatch(/^Error: lua\/\w+\.lua/)
          expect(await queue.dump(), `${name} with ${String(bad)}`).toEqual(before)
        }
        expect(
          await auditIndex(redis.store, deployment, QUEUE, isName),
          `${name} with ${String(bad)}`,
        ).toEqual([])
        // Whatever it was, the next leader goes on from here.
        const next = await openQueue(redis, deployment, { epoch: '9007199254740991', generation: 'g9' })
        await next.lane(1, {}, [job('e', 1)])
        await next.worker(1)
        expect(await next.takeIds(1, 2)).toEqual(['e'])
      }),
    )
    expect(refused).toBeGreaterThan(rounds / 4)
  })
})

describe('names', () => {
  const opened: string[] = []
  afterEach(async () => {
    for (const key of opened.splice(0)) await redis.client.del(key)
  })

  it('of queues never meet in Redis, and all keys of one have one hash tag', () => {
    const names = fc.uniqueArray(label, { minLength: 2, maxLength: 2 })
    fc.assert(
      fc.property(names, ([one = '', other = '']) => {
        const keys = [one, other].map(name => rootKey('d', name))
        expect(keys[0]).not.toBe(keys[1])
        for (const key of keys) {
          // What Redis Cluster takes for the hash tag: up to the first closing brace behind the first opening one.
          expect(/\{(.+?)\}/.exec(key)?.[1]).toBe(key.slice('longshore:d:{'.length, key.lastIndexOf('}')))
          expect(key).toMatch(/^longshore:d:\{[\w.~!'()%-]+\}:\d+$/)
        }
      }),
    )
  })

  it('of tasks, tags and constraints are matched as they are', async () => {
    const names = fc.uniqueArray(label, { minLength: 4, maxLength: 4 })
    let rounds = 0
    await always(
      'names in scripts',
      25,
      fc.asyncProperty(names, async ([task = '', tag = '', constraintTag = '', other = '']) => {
        const queue = await openQueue(redis, `${redis.deployment}-${rounds++}`)
        await queue.worker(1, { tasks: [task], tags: [tag], constraintTags: [constraintTag] })
        await queue.lane(1, { task, tag, constraintTag }, [job('mine')])
        await queue.lane(2, { task: other, tag, constraintTag }, [job('not by task', 1, 2)])
        await queue.lane(3, { task, tag: other, constraintTag }, [job('not by tag', 1, 3)])
        await queue.worker(2, { tasks: [task], tags: [tag], constraintTags: [other] })
        expect(await queue.takeIds(2, 5)).toEqual([])
        expect(await queue.takeIds(1, 5)).toEqual(['mine'])
      }),
    )
  })

  it('of queues may be anything: what one holds is not another’s', async () => {
    await useQueue()
    const names = ['{}', '*', '{a}', 'a}', 'a:b', '%7B%7D', '日本語']
    const indexes = names.map(name => queueIndex(redis.store, redis.deployment, name, isName))
    for (const [n, index] of indexes.entries()) {
      opened.push(index.root)
      await index.beginGeneration('1', 'g1', { width: 0, strategy: 'random' }, SIZES)
      const step = { epoch: '1', generation: 'g1', seq: 1 }
      await index.refill(step, laneFacts(1), START, null, [job(`job of ${n}`)])
    }
    for (const [n, index] of indexes.entries()) {
      await index.register('g1', 1, FACTS)
      const { ids } = await index.take({ ...TAKE, limit: 10 })
      expect(ids).toEqual([`job of ${n}`])
    }
  })
})
