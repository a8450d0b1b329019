/**
 * Random histories of one queue: what Postgres, a relay and a few workers would do to Redis, done to Redis and to the model of it.
 * Everything follows from the seed.
 */
import type { LaneFacts, ReadyJob } from '../../src/job/ready-job.ts'
import { findViolations, isBefore } from '../../src/redis/audit-index.ts'
import { type Place, type Refused, type Spread, START } from '../../src/redis/queue-index.ts'
import type { ScriptRunner } from '../../src/redis/scripts.ts'
import { IndexModel } from './index-model.ts'
import { job, laneFacts, openQueue, QUEUE, type TestRedis, type WorkerFacts } from './redis.ts'

export interface History {
  seed: number
  steps: number
  spread: Spread
  /** Many workers from the beginning, rather than a few. */
  crowd?: boolean
  /** Scripts that differ from those of the package. */
  runner?: ScriptRunner
}

const LANES: readonly LaneFacts[] = [
  laneFacts(1, { task: 'a', tag: 'x' }),
  laneFacts(2, { task: 'a', tag: 'y' }),
  laneFacts(3, { task: 'b', tag: 'x' }),
  // A limit of a task, over two kinds.
  laneFacts(4, { task: 'c', tag: 'x', limit: 100, free: '3' }),
  laneFacts(5, { task: 'c', tag: 'y', limit: 100, free: '3' }),
  // Limits of keys: one of them over two kinds, beside jobs without a key.
  laneFacts(6, { task: 'd', tag: 'x', hasLimits: true }),
  laneFacts(7, { task: 'd', tag: 'x', hasLimits: true, kind: 6, keyLimit: 201, keyFree: '2' }),
  laneFacts(8, { task: 'd', tag: 'x', hasLimits: true, kind: 6, keyLimit: 202, keyFree: '0' }),
  laneFacts(9, { task: 'd', tag: 'y', hasLimits: true }),
  laneFacts(10, { task: 'd', tag: 'y', hasLimits: true, kind: 9, keyLimit: 201, keyFree: '2' }),
  // Both.
  laneFacts(11, { task: 'e', tag: 'x', limit: 101, free: '3' }),
  laneFacts(12, { task: 'e', tag: 'x', kind: 11, limit: 101, free: '3', keyLimit: 203, keyFree: '1' }),
  laneFacts(13, { task: 'e', tag: 'x', kind: 11, limit: 101, free: '3', keyLimit: 204, keyFree: '2' }),
  // A key that nothing limits.
  laneFacts(14, { task: 'b', tag: 'x', kind: 3 }),
]
const LIMITS = [100, 101, 201, 202, 203, 204]
const isLimited = (lane: number) =>
  LANES.some(one => one.lane === lane && (one.limit ?? one.keyLimit) !== null)
const FEW = [2, 3, 10, 20]
const CROWD = Array.from({ length: 40 }, (_, n) => n + 1)
const SIZES = { depth: 4, window: 8 }

/** Runs it to its end, or to the first difference. Answers what is wrong. */
export async function runHistory(
  redis: Pick<TestRedis, 'store' | 'client'>,
  deployment: string,
  { seed, steps, spread, crowd, runner }: History,
): Promise<string[]> {
  const random = randomFrom(seed)
  const below = (count: number) => Math.floor(random() * count)
  const oneOf = <T>(items: readonly T[]) => items[below(items.length)] as T
  const queue = await openQueue(redis, deployment, { ...spread, ...SIZES, ...(runner ? { runner } : {}) })
  // Where copies go by chance, only the rules can be checked.
  const model = spread.strategy === 'random' ? undefined : new IndexModel(spread, SIZES)
  const problems: string[] = []
  const expectSame = (what: string, got: unknown, wanted: unknown) => {
    if (model && JSON.stringify(got) !== JSON.stringify(wanted))
      problems.push(`${what}: ${JSON.stringify(got)}, and should be ${JSON.stringify(wanted)}`)
  }

  /** Postgres: what is ready, also what somebody took and has not claimed. */
  const ready = new Map<string, ReadyJob>()
  const registered = new Set<number>()
  const unclaimed = new Map<number, string[]>()
  const claimed = new Map<number, string[]>()
  const freed = new Map<number, Map<number, number>>()
  let jobs = 0

  const randomScore = () => below(12)
  const randomLane = () => (random() < 0.5 ? below(3) + 1 : oneOf(LANES).lane)
  const newJob = () => {
    // Ids in another order than they come, so that ties show.
    const made = job(`${1000 + below(1000)}-${jobs++}`, randomScore(), randomLane())
    ready.set(made.id, made)
    return made
  }
  const tell = async (told: readonly ReadyJob[], how: 'relay' | 'audit' = 'relay') => {
    const { placed } = await queue.placeJobs(told, how)
    expectSame('placed', placed, model && told.filter(one => model.place({ ...one }, how)).length)
  }
  const hint = async (told: readonly ReadyJob[]) => {
    const { placed } = await queue.hint(told)
    expectSame('placed by hints', placed, model && told.filter(one => model.hint({ ...one })).length)
  }
  const facts = (): WorkerFacts => ({
    tasks: ['a', 'b', 'c', 'd', 'e'].filter(() => random() < 0.75),
    tags: ['x', 'y'].filter(() => random() < 0.75),
    constraintTags: ['c:'],
  })
  const forget = (worker: number) => {
    registered.delete(worker)
    for (const map of [unclaimed, claimed, freed]) map.delete(worker)
  }
  const listOf = (map: Map<number, string[]>, worker: number) => {
    const list = map.get(worker) ?? []
    map.set(worker, list)
    return list
  }

  const readOn = async (lane: LaneFacts, from: Place) => {
    const rest = [...ready.values()]
      .filter(one => one.lane === lane.lane && !isBefore(one, from))
      .sort((a, b) => (isBefore(a, b) ? -1 : 1))
    const most = 1 + below(SIZES.window)
    const next = rest[most]
    const bound = next ? { score: next.score, id: next.id as string } : null
    const { code } = await queue.refill(queue.step(), lane, from, bound, rest.slice(0, most))
    expectSame('refilled', code === 'OK', model?.refill(lane, from, bound, rest.slice(0, most)))
  }
  const refill = async () => {
    const lane = oneOf(LANES)
    const known = await queue.lanePage('g1', lane.lane, START, 1)
    if (known.code === 'OK' && !known.bound) return
    await readOn(lane, random() < 0.9 ? (known.bound ?? START) : { score: String(randomScore()), id: '15' })
  }
  /** What the relay does when it is asked to read on. Whether there was something to do. */
  const refillLow = async () => {
    const low = (await redis.client.smembers(`${queue.root}:g1:low`)).sort()
    for (const number of low) {
      const lane = LANES.find(one => one.lane === Number(number)) as LaneFacts
      await readOn(lane, (await queue.lanePage('g1', lane.lane, START, 1)).bound ?? START)
    }
    return low.length > 0
  }
  // Whoever comes up short has a complete queue from then on.
  const take = () => takeFor(oneOf([...registered]), oneOf([0, 1, 2, 3, 5, 30, 30]))
  const takeFor = async (worker: number, limit: number) => {
    const running = below(6)
    const slots = freed.get(worker) ?? new Map<number, number>()
    const done = listOf(claimed, worker).splice(0)
    freed.delete(worker)
    // Some of these runs end with the claim that follows: what it does not use is told later.
    const ending = new Map([...slots].filter(([lane]) => isLimited(lane) && random() < 0.5))
    for (const lane of ending.keys()) slots.delete(lane)
    const taken = await queue.take({ generation: 'g1', worker, limit, running, freed: slots, ending, done })
    const wanted = model?.take(worker, limit, running, slots, ending, done)
    expectSame(`worker ${worker} takes ${limit}`, taken.ids, wanted?.ids)
    expectSame(`worker ${worker} uses of ${[...ending]}`, [...taken.limited], [...(wanted?.limited ?? [])])
    for (const [lane, count] of ending) free(worker, lane, count - (taken.limited.get(lane) ?? 0))
    listOf(unclaimed, worker).push(...taken.ids)
    return taken.ids
  }
  /** Its bell told it of a job, which it claims meanwhile; perhaps it is another one's by now, or ready again since. */
  const takeOffered = async () => {
    const plain = [...ready.values()].filter(({ lane }) => lane <= 3)
    if (plain.length === 0) return
    const worker = oneOf([...registered])
    const one = oneOf(plain.slice(random() < 0.7 ? -4 : 0))
    const offered = random() < 0.2 ? { ...one, leaseToken: String(Number(one.leaseToken) + 7) } : one
    const [limit, running] = [1 + below(3), below(6)]
    const done = listOf(claimed, worker).splice(0)
    const { hasMore } = await queue.takeOffered({
      generation: 'g1',
      worker,
      limit,
      running,
      job: offered,
      done,
    })
    const wanted = model?.takeOffered(worker, limit, running, offered, done)
    expectSame(`worker ${worker} has more`, hasMore, wanted)
    const record = await redis.client.hget(`${queue.root}:g1:taken`, one.id)
    const mine = listOf(unclaimed, worker)
    if (record?.startsWith(`${worker} `) && !mine.includes(one.id)) mine.push(one.id)
  }
  const free = (worker: number, lane: number, count = 1) => {
    if (count === 0) return
    const slots = freed.get(worker) ?? new Map<number, number>()
    freed.set(worker, slots.set(lane, (slots.get(lane) ?? 0) + count))
  }
  /** What a worker took is claimed, ends at once, and perhaps is ready again. */
  const claim = async () => {
    const [worker, ids] = oneOf([...unclaimed])
    const id = ids.shift()
    const one = id && ready.get(id)
    if (!one) return
    listOf(claimed, worker).push(one.id)
    free(worker, one.lane)
    ready.delete(one.id)
    if (random() < 0.3) {
      const again = { ...one, leaseToken: String(Number(one.leaseToken) + 1), score: String(randomScore()) }
      ready.set(again.id, again)
      await (random() < 0.5 ? hint([again]) : tell([again]))
    }
  }
  const putBack = async () => {
    const [worker, ids] = oneOf([...unclaimed])
    const refused: Refused[] = ids.splice(0, 1 + below(3)).flatMap(id => {
      const one = ready.get(id)
      const answer = oneOf(['busy', 'full', 'moved', 'unclear'] as const)
      return one ? [answer === 'unclear' ? { id: one.id, answer } : { ...one, answer }] : []
    })
    await queue.putBack('g1', worker, refused)
    model?.putBack(worker, refused)
  }
  /** Rather a new one: those are likelier to stand in queues. */
  const someReady = () => oneOf([...ready.values()].slice(random() < 0.7 ? -8 : 0))
  const change = async () => {
    if (ready.size === 0) return
    const one = someReady()
    const changed = {
      ...one,
      score: String(randomScore()),
      lane: random() < 0.3 ? randomLane() : one.lane,
    }
    ready.set(one.id, changed)
    await tell([changed])
  }
  const remove = async () => {
    if (ready.size === 0) return
    const ids = Array.from({ length: 1 + below(3) }, () => someReady().id)
    for (const id of ids) ready.delete(id)
    const { removed } = await queue.remove(queue.step(), ids)
    expectSame('removed', removed, model && ids.filter(id => model.remove(id)).length)
    for (const id of ids) model?.taken.delete(id)
  }
  /** A worker that left a kind may have been woken for a job that it then did not take: who stands first at two beats gets a bell. */
  const beat = async () => {
    const seq = Number(await redis.client.hget(queue.root, 'seq'))
    const one = async () => (await queue.beat({ epoch: '1', generation: 'g1', seq }, QUEUE, 0)).bells
    await one()
    while ((await one()) > 0) {}
  }
  const register = async () => {
    const worker = oneOf(crowd ? CROWD : FEW)
    await registerAs(worker)
  }
  const registerAs = async (worker: number) => {
    const told = facts()
    await queue.worker(worker, told)
    model?.register(worker, told)
    registered.add(worker)
    await beat()
  }
  const unregister = async () => {
    if (registered.size < 2) return
    const worker = oneOf([...registered])
    const left = (await queue.unregister(worker)).sort()
    expectSame(`worker ${worker} leaves`, left, model?.unregister(worker).sort())
    forget(worker)
    await beat()
    await tell(
      left.flatMap(id => ready.get(id) ?? []),
      'audit',
    )
  }
  const setSlots = async (limit: number) => {
    const count = below(4)
    await queue.setSlots(queue.step(), limit, String(count), null)
    model?.setSlots(limit, count)
  }
  const setMode = async () => {
    const next = oneOf<Spread>([
      { width: 0, strategy: 'least-queue' },
      { width: 1, strategy: 'least-queue' },
      { width: 2, strategy: 'round-robin' },
      spread,
      spread,
    ])
    await queue.setMode(queue.step(), next)
    model?.setMode(next)
  }
  const place = () => tell(Array.from({ length: 1 + below(6) }, newJob))
  const placeAgain = async () => {
    if (ready.size > 0) await tell([oneOf([...ready.values()])])
  }
  const hintNew = async () => {
    const told = Array.from({ length: 1 + below(3) }, newJob)
    await hint(told)
    if (random() < 0.7) await tell(told)
  }

  /**
   * Everyone who is not idle, or has slots to give back, takes again some day, and the relay reads on where it is asked to.
   * When all are idle, nothing may be left that somebody could start.
   */
  const settle = async () => {
    while (problems.length === 0) {
      const hasRead = await refillLow()
      const idle = (await redis.client.zrange(`${queue.root}:g1:idle`, '0', '-1')).map(Number)
      const awake = [...registered].filter(worker => !idle.includes(worker) || freed.has(worker))
      if (awake.length === 0 && !hasRead) break
      for (const worker of awake) await takeFor(worker, 500)
    }
    for (const worker of registered) {
      const ids = await takeFor(worker, 1)
      if (ids.length > 0) problems.push(`worker ${worker} slept beside ${ids}`)
    }
  }

  const drain = async () => {
    await settle()
    for (const limit of LIMITS) await setSlots(limit)
    await settle()
  }

  const weights: [number, () => Promise<unknown>][] = [
    [25, place],
    [6, hintNew],
    [5, placeAgain],
    [10, change],
    [6, remove],
    [35, take],
    [6, takeOffered],
    [15, async () => (unclaimed.size > 0 ? claim() : undefined)],
    [8, async () => (unclaimed.size > 0 ? putBack() : undefined)],
    [6, register],
    [2, unregister],
    [6, () => setSlots(oneOf(LIMITS))],
    [1, setMode],
    [15, refill],
    [4, drain],
  ]
  const lot = weights.flatMap(([weight, act]) => Array.from({ length: weight }, () => act))

  const check = async () => {
    const snapshot = await queue.snapshot()
    for (const { invariant, problem, jobId } of findViolations(snapshot))
      problems.push(`${invariant}: ${jobId ?? ''} ${problem}`)
    if (!model) return
    for (const [lane, { jobs: inLane, bound }] of model.lanes) {
      expectSame(`lane ${lane}`, snapshot.lanes.get(lane)?.jobs.map(toId), inLane.map(toId))
      expectSame(`bound of lane ${lane}`, snapshot.lanes.get(lane)?.bound, bound)
    }
    for (const [worker, { queue: copies, bound }] of model.workers) {
      expectSame(`queue of ${worker}`, snapshot.workers.get(worker)?.queue.map(toId), copies.map(toId))
      expectSame(`bound of ${worker}`, snapshot.workers.get(worker)?.bound, bound)
    }
    for (const [limit, count] of model.free)
      expectSame(`slots of ${limit}`, snapshot.limits.get(limit)?.free, count)
    expectSame('taken', [...snapshot.taken.keys()].sort(), [...model.taken.keys()].sort())
  }

  for (const worker of crowd ? CROWD : [oneOf(FEW), oneOf(FEW)]) await registerAs(worker)
  // Queues fill and overflow, and are emptied again: then they are complete.
  let isFilling = true
  for (let step = 1; step <= steps; step++) {
    if (random() < 0.05) isFilling = !isFilling
    let act = oneOf(lot)
    if (random() < 0.7 && act === (isFilling ? take : place)) act = isFilling ? place : take
    try {
      await act()
      if (step === steps) await drain()
      if (step % 20 === 0 || step === steps) await check()
    } catch (error) {
      problems.push((error as Error).message.slice(0, 500))
    }
    if (problems.length > 0) return problems.map(problem => `step ${step}, ${act.name}: ${problem}`)
  }
  return []
}

const toId = ({ id }: { id: string }) => id

/** Mulberry32. */
function randomFrom(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
