/** The red side of the steps in Redis: what a fence, a sweep or a bell is for, happens with it and without it. */
import { describe, expect, it } from 'vitest'
import { findViolations, isBefore } from '../../src/redis/audit-index.ts'
import { START, type Step } from '../../src/redis/queue-index.ts'
import { byRule } from '../support/guards.ts'
import {
  job,
  laneFacts,
  openQueue,
  QUEUE,
  type QueueOptions,
  type TestQueue,
  useRedis,
} from '../support/redis.ts'
import { type ScriptWeakness, weakenedRunner } from '../support/weaken-script.ts'

const redis = useRedis()
const SPREAD = { width: 0, strategy: 'least-queue' } as const
const SIZES = { depth: 100, window: 100 }

interface Fence {
  rule: string
  without: ScriptWeakness | ScriptWeakness[]
  options?: QueueOptions
  /** Lets it happen. Answers which jobs are ready in Postgres afterwards, or what went wrong. */
  happens: (queue: TestQueue) => Promise<string[] | string>
  tells: RegExp
}

/** What the audit of both stores asks: ready jobs are known, and what is known is ready. */
const compare = async (queue: TestQueue, ready: readonly string[]) => {
  const index = await queue.snapshot()
  const bound = index.lanes.get(1)?.bound
  const isBeyond = (id: string) => bound && !isBefore({ id, score: '1' }, bound)
  return [
    ...findViolations(index).map(({ problem }) => `11: ${problem}`),
    ...ready
      .filter(id => !index.jobs.has(id) && !index.taken.has(id) && !isBeyond(id))
      .map(id => `10: ${id} is ready, and Redis does not know it`),
    ...[...index.jobs.keys()]
      .filter(id => !ready.includes(id))
      .map(id => `11: ${id} is in Redis, and not ready`),
  ]
}

const check = async ({ without, options = {}, happens, tells }: Fence) => {
  const problems = async (name: string, runner: QueueOptions['runner']) => {
    const queue = await openQueue(redis, `${redis.deployment}-${name}`, {
      ...options,
      ...(runner ? { runner } : {}),
    })
    const said = await happens(queue)
    return typeof said === 'string' ? [said] : compare(queue, said)
  }
  expect(await problems('with', undefined)).toEqual([])
  expect((await problems('without', weakenedRunner(redis.store, without))).join('\n')).toMatch(tells)
}
const step = (seq: number, epoch = '1', generation = 'g1'): Step => ({ epoch, generation, seq })
/** As the relay does it when it has lost something: begins anew, from what Postgres says. */
const rebuild = async (queue: TestQueue, ids: string[]) => {
  await queue.beginGeneration('2', 'g2', SPREAD, SIZES)
  await queue.refill(
    step(1, '2', 'g2'),
    laneFacts(1),
    START,
    null,
    ids.map(id => job(id)),
  )
  return ids
}
const FENCED = "if generation and is_over(epoch) then return 'FENCED' end"
const AGAIN = "if tonumber(seq) == tonumber(state[3]) then return 'AGAIN' end"
const HALF_WAY = "if state[8] == seq then return 'LOST' end"
const FOLLOWS = "if tonumber(seq) ~= tonumber(state[3]) + 1 then return 'LOST' end"

const fences: Fence[] = [
  {
    rule: 'a leader whose term is over changes nothing: the epoch',
    without: { remove: FENCED },
    happens: async queue => {
      await queue.lane(1) // step 1
      await queue.adopt(step(1, '2'), SIZES)
      await queue.setMode(step(2, '2'), SPREAD)
      // The one before wakes up, and goes on where it was.
      await queue.place(step(2), 'relay', [job('old')])
      await queue.place(step(3), 'relay', [job('older')])
      await queue.place(step(3, '2'), 'relay', [job('new')])
      return ['new']
    },
    tells: /10: new is ready, and Redis does not know it\n11: older is in Redis, and not ready/,
  },
  {
    rule: 'a leader whose term is over begins nothing anew',
    without: {
      remove: "if generation and is_over(arg.epoch) then return { 'FENCED', state[2] } end",
    },
    happens: async queue => {
      await queue.lane(1, {}, [job('a')])
      await queue.adopt(step(1, '2'), SIZES)
      await queue.beginGeneration('1', 'g0', SPREAD, SIZES)
      return (await queue.snapshot()).generation === 'g1' ? ['a'] : 'an old leader has emptied the queue'
    },
    tells: /an old leader has emptied the queue/,
  },
  {
    rule: 'a leader whose term is over does not come back: adopt asks for the epoch',
    without: {
      remove: "if is_over(arg.epoch) then return { 'FENCED', '0', state[2] } end",
    },
    happens: async queue => {
      await queue.lane(1)
      await queue.adopt(step(1, '2'), SIZES)
      await queue.adopt(step(1), SIZES)
      return (await queue.snapshot()).epoch === '2' ? [] : 'the epoch has fallen'
    },
    tells: /the epoch has fallen/,
  },
  {
    rule: 'a Redis that has lost a step is found by the next one: the sequence',
    without: { remove: FOLLOWS },
    happens: async queue => {
      await queue.lane(1)
      // Step 2, which placed `a`, was lost with the server that had done it.
      const { code } = await queue.place(step(3), 'relay', [job('b')])
      return code === 'LOST' ? rebuild(queue, ['a', 'b']) : ['a', 'b']
    },
    tells: /10: a is ready, and Redis does not know it/,
  },
  {
    rule: 'a Redis that has lost a step is found by the next beat',
    without: { remove: ' or tonumber(state[3]) ~= tonumber(arg.seq) then', replacement: ' then' },
    happens: async queue => {
      await queue.lane(1)
      const { code } = await queue.beat(step(2), QUEUE, 5000)
      return code === 'LOST' ? rebuild(queue, ['a']) : ['a']
    },
    tells: /10: a is ready, and Redis does not know it/,
  },
  {
    rule: 'a Redis that has lost a step is found by the next leader',
    without: { remove: ' or tonumber(state[3]) < tonumber(arg.seq) then', replacement: ' then' },
    happens: async queue => {
      await queue.lane(1)
      const { code } = await queue.adopt(step(2, '2'), SIZES)
      return code === 'LOST' ? rebuild(queue, ['a']).then(() => ['a']) : ['a']
    },
    tells: /10: a is ready, and Redis does not know it/,
  },
  {
    rule: 'a leader goes on only with the generation that Postgres names',
    without: {
      remove: 'if generation ~= arg.generation or tonumber(state[3])',
      replacement: 'if tonumber(state[3])',
    },
    happens: async queue => {
      await queue.lane(1, {}, [job('a')])
      // The next one was written down, and never begun: since then rows were forgotten.
      const { code } = await queue.adopt(step(0, '2', 'g2'), SIZES)
      return code === 'LOST' ? rebuild(queue, ['a', 'b']) : ['a', 'b']
    },
    tells: /10: b is ready, and Redis does not know it/,
  },
  {
    rule: 'a step whose answer was lost is done once',
    without: { remove: `${AGAIN}\n  ${FOLLOWS}\n  ${HALF_WAY}` },
    happens: async queue => {
      await queue.lane(1)
      await queue.worker(1)
      await queue.place(step(2), 'relay', [job('a')])
      await queue.takeIds(1, 1)
      await queue.takeIds(1, 0, { done: ['a'] })
      await queue.place(step(2), 'relay', [job('a')])
      return []
    },
    tells: /11: a is in Redis, and not ready/,
  },
  {
    rule: 'a step that failed half-way is not counted as done when it is repeated',
    without: {
      remove: "redis.call('HSET', root, 'epoch', epoch, 'begun', seq)",
      replacement: "redis.call('HSET', root, 'epoch', epoch, 'seq', seq)",
    },
    happens: async queue => {
      await queue.lane(1)
      const idle = `${queue.root}:g1:idle`
      await redis.client.set(idle, 'no sorted set')
      await expect(queue.place(step(2), 'relay', [job('a')])).rejects.toThrow('WRONGTYPE')
      // Its answer was lost.
      const { code } = await queue.place(step(2), 'relay', [job('a')])
      await redis.client.del(idle)
      return code === 'LOST' ? rebuild(queue, ['a']) : ['a']
    },
    tells: /10: a is ready, and Redis does not know it/,
  },
  {
    rule: 'a step that failed half-way is not done on top of what it left',
    without: { remove: HALF_WAY },
    happens: async queue => {
      await queue.refill(step(1), laneFacts(1), START, { score: '5', id: 'e' }, [])
      const low = `${queue.root}:g1:low`
      await redis.client.del(low)
      await redis.client.set(low, 'no set')
      await expect(queue.place(step(2), 'relay', [job('a')])).rejects.toThrow('WRONGTYPE')
      await redis.client.del(low)
      const { code } = await queue.place(step(2), 'relay', [job('a')])
      return code === 'LOST' ? rebuild(queue, ['a']) : ['a']
    },
    tells: /11: lane 1 holds 1 jobs, and nobody is asked to read on/,
  },
  {
    rule: 'the next leader does not go on after a step that failed half-way',
    without: { remove: "if state[8] and state[8] ~= state[3] then return { 'LOST', '0', '0' } end" },
    happens: async queue => {
      await queue.lane(1)
      const idle = `${queue.root}:g1:idle`
      await redis.client.set(idle, 'no sorted set')
      await expect(queue.place(step(2), 'relay', [job('a')])).rejects.toThrow('WRONGTYPE')
      await redis.client.del(idle)
      const { code } = await queue.adopt(step(1, '2'), SIZES)
      return code === 'LOST' ? rebuild(queue, ['a']) : ['a']
    },
    tells: /10: a is ready, and Redis does not know it/,
  },
  {
    rule: 'a step of an earlier generation is not done in the next',
    without: { remove: ' or of_generation ~= generation then', replacement: ' then' },
    happens: async queue => {
      await queue.lane(1)
      await queue.beginGeneration('1', 'g2', SPREAD, SIZES)
      // It was under way: when Postgres was asked, the lane was empty.
      await queue.refill(step(1), laneFacts(1), START, null, [])
      await queue.refill(step(1, '1', 'g2'), laneFacts(1), START, null, [job('a')])
      return ['a']
    },
    tells: /10: a is ready, and Redis does not know it/,
  },
  {
    rule: 'nothing of the present generation is dropped',
    without: { remove: "if generation == arg.generation then return { 'OK', 0 } end" },
    happens: async queue => {
      await queue.lane(1, {}, [job('a')])
      while (await queue.dropGeneration('g1', 10)) {}
      return ['a']
    },
    tells: /1[01]: /,
  },
]

describe('the fence of a step', () => {
  it.each(byRule(fences))('[X7] %s', (_, fence) => check(fence))
})

const LIMITED = { limit: 50, free: '1' }
const TWICE = 'two jobs were taken for one slot'
const took = (ids: string[]) => (ids.length > 1 ? TWICE : [])

const takes: Fence[] = [
  {
    rule: 'what a worker tells of an earlier generation is not counted in the next',
    without: {
      remove: "if not generation or generation ~= arg.generation then return { 'LOST' } end\nif redis",
      replacement: 'if redis',
    },
    happens: async queue => {
      await queue.beginGeneration('1', 'g2', SPREAD, SIZES)
      await queue.register('g2', 1, { tasks: ['task'], tags: ['default'], constraintTags: ['c:'] })
      await queue.refill(step(1, '1', 'g2'), laneFacts(1, LIMITED), START, null, [job('a'), job('b')])
      const asking = { worker: 1, limit: 0, running: 0, done: [] }
      await queue.take({ ...asking, generation: 'g1', freed: new Map([[1, 1]]) })
      const { ids } = await queue.take({ ...asking, generation: 'g2', limit: 5, freed: new Map() })
      return ids.length > 1 ? TWICE : ['a', 'b']
    },
    tells: new RegExp(TWICE),
  },
  {
    rule: 'a worker that has left is not taken for idle when its last take arrives',
    without: {
      remove: "if redis.call('HEXISTS', prefix .. 'workers', arg.worker) == 0 then return { 'UNKNOWN' } end",
    },
    happens: async queue => {
      await queue.lane(1)
      await queue.worker(1)
      await queue.unregister(1)
      await queue.take({ generation: 'g1', worker: 1, limit: 1, running: 0, freed: new Map(), done: [] })
      return []
    },
    tells: /worker 1 is idle and not registered/,
  },
  {
    rule: 'a worker acknowledges only what it has taken itself',
    without: {
      remove: 'if record and string.sub(record, 1, #mine) == mine then',
      replacement: 'if record then',
    },
    happens: async queue => {
      await queue.lane(1)
      await queue.worker(1)
      await queue.worker(2)
      await queue.placeJobs([job('a')])
      await queue.takeIds(1, 1)
      await queue.placeJobs([job('a')], 'audit') // it was slow
      await queue.takeIds(2, 1)
      await queue.takeIds(1, 0, { done: ['a'] })
      return ['a']
    },
    tells: /10: a is ready, and Redis does not know it/,
  },
  {
    rule: 'a worker puts back only what it has taken itself',
    without: { remove: 'if taker == arg.worker then', replacement: 'if taker then' },
    happens: async queue => {
      await queue.lane(1)
      await queue.worker(1)
      await queue.worker(2)
      await queue.placeJobs([job('a')])
      await queue.takeIds(1, 1)
      await queue.placeJobs([job('a')], 'audit')
      await queue.takeIds(2, 1)
      await queue.putBack('g1', 1, [{ ...job('a'), answer: 'busy' }])
      return (await queue.takeIds(1, 1)).length === 0 ? ['a'] : 'two workers have the job at once'
    },
    tells: /two workers have the job at once/,
  },
  {
    rule: 'a count of slots that was true before the last take is not believed',
    without: {
      remove:
        "if arg.turn ~= '' and (redis.call('HGET', prefix .. 'turns', arg.limit) or '0') ~= arg.turn then return done({ 'CHANGED', 0 }) end",
    },
    happens: async queue => {
      await queue.lane(1, LIMITED, [job('a'), job('b')])
      await queue.worker(1)
      const { turn } = (await queue.snapshot()).limits.get(50) as { turn: string }
      const ids = await queue.takeIds(1, 1)
      await queue.takeIds(1, 0, { done: ids }) // claimed
      await queue.setSlots(queue.step(), 50, '1', turn)
      return took([...ids, ...(await queue.takeIds(1, 5))]) === TWICE ? TWICE : ['b']
    },
    tells: new RegExp(TWICE),
  },
  {
    rule: 'a slot of what is taken and not claimed is not free',
    without: { remove: 'if limit == arg.limit then free = free - 1 end', replacement: '' },
    happens: async queue => {
      await queue.lane(1, LIMITED, [job('a'), job('b')])
      await queue.worker(1)
      const ids = await queue.takeIds(1, 1)
      await queue.setSlots(queue.step(), 50, '1', null)
      return took([...ids, ...(await queue.takeIds(1, 5))]) === TWICE ? TWICE : ['a', 'b']
    },
    tells: new RegExp(TWICE),
  },
  {
    rule: 'a slot that Postgres and Redis both count is free when it is freed',
    without: { remove: 'math.max(0, free)', replacement: 'free' },
    happens: async queue => {
      await queue.lane(1, LIMITED, [job('a'), job('b')])
      await queue.worker(1)
      const ids = await queue.takeIds(1, 1)
      // It is claimed, and Redis does not know.
      await queue.setSlots(queue.step(), 50, '0', null)
      const next = await queue.takeIds(1, 1, { freed: new Map([[1, 1]]), done: ids })
      return next.length === 1 ? [] : 'nobody gets the slot'
    },
    tells: /nobody gets the slot/,
  },
]

describe('a take', () => {
  it.each(byRule(takes))('[D7] [D8] %s', (_, fence) => check(fence))
})

/** A worker took a job and is never heard of again. */
const vanish = async (queue: TestQueue) => {
  await queue.lane(1)
  await queue.worker(1)
  await queue.placeJobs([job('a')])
  expect(await queue.takeIds(1, 1)).toEqual(['a'])
  await queue.worker(2)
}
const offerAgain = async (queue: TestQueue, ids: readonly string[]) => {
  await queue.placeJobs(
    ids.map(id => job(id)),
    'audit',
  )
  return (await queue.takeIds(2, 1)).length === 1 ? ['a'] : 'nobody gets the job'
}
const beats = async (queue: TestQueue, count: number) => {
  const { seq } = await queue.snapshot()
  let bells = 0
  for (let n = 0; n < count; n++) bells += (await queue.beat(step(seq), QUEUE, 0)).bells
  return bells
}
/** An idle worker was rung for a job, long ago. */
const deaf = async (queue: TestQueue) => {
  await queue.lane(1)
  await queue.worker(1)
  await queue.takeIds(1, 1)
  expect((await queue.placeJobs([job('a')])).bells).toBe(1)
  await redis.client.zadd(`${queue.root}:g1:rung`, '1', '1')
  return (await beats(queue, 3)) > 0 ? ['a'] : 'the worker sleeps beside a job'
}
const lowOf = async (queue: TestQueue) =>
  (await queue.snapshot()).low.includes(1) ? [] : 'nobody reads the lane in again'

/** A lane of which Redis holds two and Postgres more; its worker goes directly to Postgres. */
const spilled = async (queue: TestQueue) => {
  await queue.refill(queue.step(), laneFacts(1), START, { score: '5', id: 'e' }, [
    job('a'),
    job('b'),
    job('c'),
    job('d'),
  ])
  for (const worker of [1, 2]) await queue.worker(worker)
  const taken = await queue.take({
    generation: 'g1',
    worker: 1,
    limit: 2,
    running: 0,
    freed: new Map(),
    done: [],
    straight: 'may',
  })
  expect(taken.goesStraight).toBe(true)
}
const takeStraight = (queue: TestQueue, worker: number, straight?: 'may' | 'short') =>
  queue.take({
    generation: 'g1',
    worker,
    limit: 2,
    running: 0,
    freed: new Map(),
    done: [],
    ...(straight ? { straight } : {}),
  })

/** Whoever comes and cannot go straight leaves it as it is. */
const STAYS = {
  remove: '    goes_straight = false\n    unspill()\n',
  replacement: '    goes_straight = false\n',
}

const sweeps: Fence[] = [
  {
    rule: 'what was taken and never claimed is found by a beat',
    without: { remove: 'then overdue[#overdue + 1] = taken[at] end', replacement: 'then end' },
    happens: async queue => {
      await vanish(queue)
      const { seq } = await queue.snapshot()
      return offerAgain(queue, (await queue.beat(step(seq), QUEUE, -1)).overdue)
    },
    tells: /nobody gets the job/,
  },
  {
    rule: 'what a worker took is told when it leaves',
    without: { remove: 'then left[#left + 1] = taken[at] end', replacement: 'then end' },
    happens: async queue => {
      await vanish(queue)
      return offerAgain(queue, await queue.unregister(1))
    },
    tells: /nobody gets the job/,
  },
  {
    rule: 'what was found to be taken in vain is offered again',
    without: {
      remove: "if how ~= 'audit' and newer <= 0",
      replacement: 'if newer <= 0',
    },
    happens: async queue => {
      await vanish(queue)
      return offerAgain(queue, ['a'])
    },
    tells: /nobody gets the job/,
  },
  {
    rule: 'whoever was rung and did not come is idle again',
    without: { remove: "redis.call('ZADD', prefix .. 'idle', 'NX', 0, worker)" },
    happens: deaf,
    tells: /sleeps beside a job/,
  },
  {
    rule: 'a job that stands first at two beats is rung for',
    without: { remove: 'if stood[name] == first then ring(kind) end' },
    happens: deaf,
    tells: /sleeps beside a job/,
  },
  {
    rule: 'a lane that was left to Postgres comes back when a worker came short',
    without: [{ remove: "if arg.straight == 'short' then unspill() end" }, STAYS],
    options: { window: 8 },
    happens: async queue => {
      await spilled(queue)
      await takeStraight(queue, 1, 'short')
      return lowOf(queue)
    },
    tells: /nobody reads the lane in again/,
  },
  {
    rule: 'a lane that was left to Postgres comes back when somebody takes who cannot go there',
    without: {
      remove: '    goes_straight = false\n    unspill()\n',
      replacement: '    goes_straight = false\n',
    },
    options: { window: 8 },
    happens: async queue => {
      await spilled(queue)
      await takeStraight(queue, 2)
      return lowOf(queue)
    },
    tells: /nobody reads the lane in again/,
  },
  {
    rule: 'a lane that was left to Postgres comes back when a worker leaves',
    without: { remove: '-- It may have been the one that worked through them.\nunspill()\n' },
    options: { window: 8 },
    happens: async queue => {
      await spilled(queue)
      await queue.unregister(1)
      return lowOf(queue)
    },
    tells: /nobody reads the lane in again/,
  },
  {
    rule: 'lanes that another worker shares in part are not left to Postgres',
    without: { remove: ' and are_all_alike()', replacement: '' },
    options: { window: 4 },
    happens: async queue => {
      await queue.worker(1, { tasks: ['task', 'other'] })
      await queue.worker(2, { tasks: ['other'] })
      await queue.lane(2, { task: 'other' })
      const jobs = ['a', 'b', 'c', 'd'].map(id => job(id))
      await queue.refill(queue.step(), laneFacts(1), START, { score: '5', id: 'e' }, jobs)
      await queue.takeIds(2, 1)
      const take = { generation: 'g1', worker: 1, limit: 2, running: 0, freed: new Map(), done: [] }
      await queue.take({ ...take, straight: 'may' })
      const { bells } = await queue.placeJobs([job('f', 1, 2)])
      return bells === 1 ? ['c', 'd', 'f'] : 'an idle worker is not woken'
    },
    tells: /an idle worker is not woken/,
  },
  {
    rule: 'who is idle beside lanes that are left to Postgres is woken by a beat',
    without: { remove: '    while lane and ring(lane.kind) do end\n' },
    options: { window: 4 },
    happens: async queue => {
      await queue.worker(1)
      await queue.worker(2)
      const jobs = ['a', 'b', 'c', 'd'].map(id => job(id))
      await queue.refill(queue.step(), laneFacts(1), START, { score: '5', id: 'e' }, jobs)
      const take = { generation: 'g1', worker: 1, limit: 2, running: 0, freed: new Map(), done: [] }
      await queue.take({ ...take, straight: 'may' })
      // Its bell got lost, and an earlier beat has found so.
      await redis.client.zadd(`${queue.root}:g1:idle`, '0', '2')
      const { bells } = await queue.beat(step(1), QUEUE, 5000)
      return bells === 1 ? [] : 'an idle worker is not woken'
    },
    tells: /an idle worker is not woken/,
  },
  {
    rule: 'a lane that is left to Postgres takes in nothing that the relay was reading',
    without: {
      remove:
        "if lane.is_spilled then return done({ 'SPILLED', bells, lane.bound_score, lane.bound_id }) end",
    },
    options: { window: 8 },
    happens: async queue => {
      await spilled(queue)
      await queue.refill(queue.step(), laneFacts(1), START, null, [job('c')])
      return (await queue.snapshot()).lanes.get(1)?.jobs.length === 0 ? [] : 'two ways lead to the job'
    },
    tells: /two ways lead to the job/,
  },
  {
    rule: 'a lane is read on whose last job here is one that a bell told of',
    without: { remove: 'if is_bounded then tell_low() end\n' },
    options: { window: 1 },
    happens: async queue => {
      await queue.lane(1)
      await queue.worker(1)
      const first = job('a', 1)
      await queue.placeJobs([first, job('b', 2)])
      await queue.takeOffered({ generation: 'g1', worker: 1, limit: 5, running: 0, job: first, done: [] })
      return (await queue.snapshot()).low.includes(1) ? [] : 'nobody reads on in the lane'
    },
    tells: /nobody reads on in the lane/,
  },
]

describe('what was lost on the way', () => {
  it.each(byRule(sweeps))('[S10] %s', (_, fence) => check(fence))
})
