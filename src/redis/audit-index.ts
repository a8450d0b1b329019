/**
 * Owns the question whether what Redis holds of one queue keeps its rules: reads all of it, and compares what is written down
 * twice. Reads one key after another, so it is for a queue that stands still; key names come from the sets that list them.
 */

import { rootKey } from './names.ts'
import type { RedisStore } from './open-redis.ts'
import { type Place, type Spread, START } from './queue-index.ts'
import {
  BrokenIndexError,
  broken,
  type IdCheck,
  toCode,
  toDigits,
  toIds,
  toInteger,
  toList,
  toNumber,
} from './replies.ts'

export interface LaneSnapshot {
  kind: number
  limit: number | null
  keyLimit: number | null
  /** Jobs at or behind it are in Postgres only; null: all are here. */
  bound: Place | null
  /** The job by which it stands among the heads of its kind. */
  head: string | null
  /** It is left to Postgres. */
  isSpilled: boolean
  jobs: Place[]
}

export interface KindSnapshot {
  task: string
  tag: string
  constraintTag: string
  isPlain: boolean
  hasLimits: boolean
  /** Lanes under limits that have jobs and slots of their key, best first. */
  heads: (Place & { lane: number })[]
  workers: number[]
}

export interface WorkerSnapshot {
  tasks: string[]
  tags: string[]
  constraintTags: string[]
  running: number
  /** Up to where its queue is complete; null: wholly. */
  bound: Place | null
  plain: number[]
  limited: number[]
  queue: Place[]
}

/** All that Redis holds of one queue in its present generation. */
export interface IndexSnapshot extends Spread {
  generation: string
  epoch: string
  seq: number
  depth: number
  window: number
  lanes: Map<number, LaneSnapshot>
  kinds: Map<number, KindSnapshot>
  /** How many lanes each kind has. */
  kindSizes: Map<number, number>
  workers: Map<number, WorkerSnapshot>
  jobs: Map<string, { lane: number; score: string; leaseToken: string }>
  /** The reverse index: which workers' queues hold a copy of a job. */
  held: Map<string, number[]>
  taken: Map<string, { worker: number; lane: number; leaseToken: string; sinceMs: number; score: string }>
  limits: Map<number, { free: number; turn: string; under: number[] }>
  /** Limits without a free slot. */
  full: number[]
  /** Lanes in which the relay should read on. */
  low: number[]
  /** Lanes that go on in Postgres. */
  bounded: number[]
  /** Lanes that are left to Postgres. */
  spilled: number[]
  /** Longest first. */
  idle: number[]
  /** Who has a queue for copies, by rank. */
  open: { worker: number; rank: number }[]
}

/** What one job more counts in a rank: numbers of workers are less. */
const ONE_LOAD = 2 ** 32

export type IndexInvariant =
  | 'one home' // a job is in exactly one lane, or taken
  | 'window' // a lane holds no more than it may, nothing at or behind its bound, and is read on in when it runs low
  | 'bounded' // lists exactly the lanes with a bound
  | 'spilled' // lists exactly the lanes that are left to Postgres, and these hold nothing
  | 'kinds' // each has lanes, as many as are counted
  | 'depth' // nor does a worker's queue
  | 'reverse index' // `held` is what the queues hold
  | 'copies' // of ready jobs of plain lanes, for workers that may run them
  | 'complete' // queues hold all that they should, up to their bounds
  | 'heads' // exactly the lanes under limits that have jobs, and slots of their key
  | 'full' // lists exactly the limits without a free slot
  | 'eligible' // workers serve exactly the kinds that match them
  | 'idle' // only registered workers are
  | 'open' // lists exactly the workers that do not work through their lanes, by load where that decides

export interface IndexViolation {
  invariant: IndexInvariant
  problem: string
  jobId?: string
}

/** What does not hold; empty when everything is in order, or Redis holds nothing of the queue. */
export async function auditIndex(
  store: Pick<RedisStore, 'read'>,
  deployment: string,
  queue: string,
  isId?: IdCheck,
): Promise<IndexViolation[]> {
  const snapshot = await readIndex(store, deployment, queue, isId)
  return snapshot ? findViolations(snapshot) : []
}

/** Null: no generation has begun. Fails with a `BrokenIndexError` on what no script has written. */
export async function readIndex(
  store: Pick<RedisStore, 'read'>,
  deployment: string,
  queue: string,
  isId?: IdCheck,
): Promise<IndexSnapshot | null> {
  const { toId, toBound } = toIds(isId)
  const root = rootKey(deployment, queue)
  const read = (command: string, name: string, ...args: string[]) =>
    store.read(command, name, ...args).catch(error => {
      const isOfAnotherType = String((error as Error)?.message).startsWith('WRONGTYPE')
      throw isOfAnotherType ? new BrokenIndexError(`Redis holds another type of key at ${name}`) : error
    })
  const state = toMap(await read('hgetall', root))
  const generation = state.get('generation')
  if (generation === undefined) return null
  const key = (name: string) => `${root}:${generation}:${name}`
  const hash = async (name: string) => toMap(await read('hgetall', key(name)))
  const set = async (name: string) => toList(await read('smembers', key(name)), toNumber).sort(byNumber)
  const scored = async (name: string) => toPairs(await read('zrange', key(name), '0', '-1', 'withscores'))
  const sorted = async (name: string) =>
    (await scored(name)).map(([id, score]) => ({ id: toId(id), score: toDigits(score) }))
  const numbered = async (name: string) => (await scored(name)).map(([id]) => toNumber(id))
  const boundOf = (facts: ReadonlyMap<string, string>) =>
    toBound(facts.get('bound-score') ?? '', facts.get('bound-id') ?? '')

  /** Asks for all of them before the first answers. */
  const mapOf = async <Name extends string | number, T>(
    names: Iterable<Name>,
    about: (name: Name) => Promise<T>,
  ) => new Map(await Promise.all([...names].map(async name => [toNumber(name), await about(name)] as const)))

  const lanes = await mapOf(await set('lanes'), async (lane): Promise<LaneSnapshot> => {
    const [facts, jobs] = await Promise.all([hash(`lane-facts:${lane}`), sorted(`lane:${lane}`)])
    const head = facts.get('head')
    return {
      kind: toNumber(facts.get('kind')),
      limit: toOptional(facts.get('limit')),
      keyLimit: toOptional(facts.get('key-limit')),
      bound: boundOf(facts),
      head: head === undefined ? null : toId(head),
      isSpilled: facts.has('spilled'),
      jobs,
    }
  })
  const kindFacts = await hash('kinds')
  const kinds = await mapOf(kindFacts.keys(), async (kind): Promise<KindSnapshot> => {
    const [heads, workers] = await Promise.all([scored(`heads:${kind}`), set(`workers-of:${kind}`)])
    const facts = toFacts(kindFacts.get(kind))
    return {
      task: toText(facts['task']),
      tag: toText(facts['tag']),
      constraintTag: toText(facts['constraintTag']),
      isPlain: facts['isPlain'] === true,
      hasLimits: facts['hasLimits'] === true,
      heads: heads.map(([member, score]) => {
        const [id, lane] = member.split(' ')
        return { id: toId(id), score: toDigits(score), lane: toNumber(lane) }
      }),
      workers,
    }
  })
  const sizes = await hash('kind-sizes')
  const workerFacts = await hash('workers')
  const workers = await mapOf(workerFacts.keys(), async (worker): Promise<WorkerSnapshot> => {
    const [state, queue] = await Promise.all([hash(`worker:${worker}`), sorted(`queue:${worker}`)])
    const facts = toFacts(workerFacts.get(worker))
    return {
      tasks: toList(facts['tasks'], toText),
      tags: toList(facts['tags'], toText),
      constraintTags: toList(facts['constraintTags'], toText),
      running: toInteger(state.get('running') ?? 0),
      bound: boundOf(state),
      plain: toNumbers(state.get('plain')),
      limited: toNumbers(state.get('limited')),
      queue,
    }
  })
  const [slots, turns] = await Promise.all([hash('slots'), hash('turns')])
  const limits = await mapOf(slots.keys(), async limit => ({
    free: toCount(slots.get(limit)),
    turn: toDigits(turns.get(limit) ?? '0'),
    under: await set(`under:${limit}`),
  }))
  /** Without the entry that makes it a table. */
  const table = async (name: string) => [...(await hash(name))].filter(([id]) => id !== '')
  const jobs: IndexSnapshot['jobs'] = new Map()
  for (const [id, record] of await table('jobs')) {
    const [lane, score, leaseToken] = record.split(' ')
    jobs.set(toId(id), { lane: toNumber(lane), score: toDigits(score), leaseToken: toDigits(leaseToken) })
  }
  const taken: IndexSnapshot['taken'] = new Map()
  for (const [id, record] of await table('taken')) {
    const [worker, sinceMs, lane, score, leaseToken] = record.split(' ')
    taken.set(toId(id), {
      worker: toNumber(worker),
      lane: toNumber(lane),
      leaseToken: toDigits(leaseToken),
      sinceMs: toInteger(sinceMs),
      score: toDigits(score),
    })
  }
  return {
    generation,
    epoch: toDigits(state.get('epoch')),
    seq: toInteger(state.get('seq')),
    width: toInteger(state.get('width')),
    strategy: toCode(state.get('strategy'), 'least-queue', 'round-robin', 'random'),
    depth: toInteger(state.get('depth')),
    window: toInteger(state.get('window')),
    lanes,
    kinds,
    kindSizes: new Map([...sizes].map(([kind, size]) => [toNumber(kind), toCount(size)])),
    workers,
    jobs,
    held: new Map((await table('held')).map(([id, holders]) => [toId(id), toNumbers(holders)])),
    taken,
    limits,
    full: await set('full'),
    low: await set('low'),
    bounded: await set('bounded'),
    spilled: await set('spilled'),
    idle: await numbered('idle'),
    open: (await scored('open')).map(([id, score]) => ({ worker: toNumber(id), rank: Number(score) })),
  }
}

/** Which of the rules a content breaks. */
export function findViolations(index: IndexSnapshot): IndexViolation[] {
  const found: IndexViolation[] = []
  const report = (invariant: IndexInvariant, problem: string, jobId?: string) => {
    found.push({ invariant, problem, ...(jobId === undefined ? {} : { jobId }) })
  }
  checkHomes(index, report)
  checkKinds(index, report)
  checkCopies(index, report)
  checkCompleteness(index, report)
  checkHeads(index, report)
  checkFull(index, report)
  checkEligible(index, report)
  checkOpen(index, report)
  for (const worker of index.idle) {
    if (!index.workers.has(worker)) report('idle', `worker ${worker} is idle and not registered`)
  }
  return found
}

type Report = (invariant: IndexInvariant, problem: string, jobId?: string) => void

function checkHomes(index: IndexSnapshot, report: Report): void {
  const { lanes, kinds, jobs, taken, window, low, bounded, spilled } = index
  const homes = new Map<string, number>()
  const withBound = [...lanes].filter(([, { bound }]) => bound).map(([number]) => number)
  if (withBound.sort(byNumber).join() !== bounded.join())
    report('bounded', `the lanes ${withBound} have a bound, listed are ${bounded}`)
  const left = [...lanes].filter(([, { isSpilled }]) => isSpilled).map(([number]) => number)
  if (left.sort(byNumber).join() !== spilled.join())
    report('spilled', `the lanes ${left} are left to Postgres, listed are ${spilled}`)
  for (const [number, lane] of lanes) {
    if (!kinds.has(lane.kind)) report('one home', `the kind ${lane.kind} of lane ${number} is not known`)
    if (lane.jobs.length > window)
      report('window', `lane ${number} holds ${lane.jobs.length} jobs, and may hold ${window}`)
    if (lane.isSpilled) {
      if (lane.jobs.length > 0) report('spilled', `lane ${number} is left to Postgres, and holds jobs`)
      if (lane.bound?.score !== START.score)
        report('spilled', `lane ${number} is left to Postgres, and its bound is not at the start`)
    } else if (lane.bound && lane.jobs.length < window / 2 && !low.includes(number))
      report('window', `lane ${number} holds ${lane.jobs.length} jobs, and nobody is asked to read on`)
    for (const job of lane.jobs) {
      const other = homes.get(job.id)
      if (other !== undefined) report('one home', `stands in the lanes ${other} and ${number}`, job.id)
      homes.set(job.id, number)
      const known = jobs.get(job.id)
      if (known?.lane !== number || known.score !== job.score)
        report(
          'one home',
          `stands in lane ${number} at ${job.score}, known is ${JSON.stringify(known)}`,
          job.id,
        )
      if (taken.has(job.id)) report('one home', `is taken and stands in lane ${number}`, job.id)
      if (lane.bound && !isBefore(job, lane.bound))
        report('window', `stands at or behind the bound ${lane.bound.score} of lane ${number}`, job.id)
    }
  }
  for (const [id, { lane }] of jobs) {
    if (!homes.has(id)) report('one home', `is known of lane ${lane} and not there`, id)
  }
}

function checkKinds({ lanes, kinds, kindSizes }: IndexSnapshot, report: Report): void {
  for (const kind of new Set([...kinds.keys(), ...kindSizes.keys()])) {
    const size = [...lanes.values()].filter(lane => lane.kind === kind).length
    if (size !== kindSizes.get(kind) || !kinds.has(kind))
      report('kinds', `kind ${kind} has ${size} lanes, counted are ${kindSizes.get(kind)}`)
  }
}

function checkCopies(index: IndexSnapshot, report: Report): void {
  const { lanes, jobs, held, workers, depth, width } = index
  for (const [number, { queue }] of workers) {
    if (queue.length > depth)
      report('depth', `the queue of worker ${number} holds ${queue.length} jobs, and may hold ${depth}`)
    for (const copy of queue) {
      const job = jobs.get(copy.id)
      const lane = job && lanes.get(job.lane)
      if (!held.get(copy.id)?.includes(number))
        report('reverse index', `stands in the queue of worker ${number}, which does not hold it`, copy.id)
      if (!job || !lane) report('copies', `worker ${number} has a copy of what is not ready`, copy.id)
      else {
        if (job.score !== copy.score)
          report('copies', `worker ${number} has it at ${copy.score}, its lane at ${job.score}`, copy.id)
        if (!isPlain(lane, job.lane))
          report('copies', `worker ${number} has a copy out of lane ${job.lane}, which is not plain`, copy.id)
        if (!index.kinds.get(lane.kind)?.workers.includes(number))
          report('copies', `worker ${number} has a copy, and may not run it`, copy.id)
      }
    }
  }
  for (const [id, holders] of held) {
    if (new Set(holders).size !== holders.length) report('reverse index', `is held twice: ${holders}`, id)
    if (width > 0 && holders.length > width)
      report('reverse index', `is held by ${holders.length} workers of at most ${width}`, id)
    for (const holder of holders) {
      if (!workers.get(holder)?.queue.some(copy => copy.id === id))
        report('reverse index', `is held by worker ${holder}, whose queue does not have it`, id)
    }
  }
}

function checkCompleteness({ lanes, kinds, held, workers, width }: IndexSnapshot, report: Report): void {
  for (const [number, lane] of lanes) {
    if (!isPlain(lane, number)) continue
    for (const job of lane.jobs) {
      const holders = held.get(job.id) ?? []
      for (const worker of kinds.get(lane.kind)?.workers ?? []) {
        const bound = workers.get(worker)?.bound ?? null
        const isWithin = bound === null || isBefore(job, bound)
        if (width === 0 && isWithin !== holders.includes(worker))
          report(
            'complete',
            `${isWithin ? 'before' : 'behind'} the bound of worker ${worker}, held by ${holders}`,
            job.id,
          )
        if (width > 0 && isWithin && holders.length === 0)
          report('complete', `nobody holds it, and it is before the bound of worker ${worker}`, job.id)
      }
    }
  }
}

function checkFull({ limits, full }: IndexSnapshot, report: Report): void {
  const without = [...limits].filter(([, { free }]) => free <= 0).map(([limit]) => limit)
  if (without.sort(byNumber).join() !== full.join())
    report('full', `the limits ${without} have no free slot, listed are ${full}`)
}

function checkHeads({ lanes, kinds, limits }: IndexSnapshot, report: Report): void {
  const heads = new Map(
    [...kinds.values()].flatMap(kind => kind.heads.map(head => [head.lane, head] as const)),
  )
  const count = [...kinds.values()].reduce((sum, kind) => sum + kind.heads.length, 0)
  if (count !== heads.size) report('heads', `${count} heads of ${heads.size} lanes`)
  for (const [number, lane] of lanes) {
    const isOpen = lane.keyLimit === null || (limits.get(lane.keyLimit)?.free ?? 0) > 0
    const wanted = !isPlain(lane, number) && isOpen ? lane.jobs[0] : undefined
    const head = heads.get(number)
    if (head?.id !== wanted?.id || head?.score !== wanted?.score || lane.head !== (wanted?.id ?? null))
      report(
        'heads',
        `lane ${number} should have ${JSON.stringify(wanted)}, has ${JSON.stringify(head)}, ${lane.head}`,
      )
    if (head && !kinds.get(lane.kind)?.heads.includes(head))
      report('heads', `lane ${number} is of kind ${lane.kind} and has its head elsewhere`)
    if (!isPlain(lane, number) && kinds.get(lane.kind)?.hasLimits !== true)
      report('heads', `lane ${number} is not plain, and nobody looks at the heads of kind ${lane.kind}`)
    heads.delete(number)
  }
  for (const lane of heads.keys()) report('heads', `there is a head of lane ${lane}, and no such lane`)
}

function checkOpen({ workers, open, width, strategy }: IndexSnapshot, report: Report): void {
  const isByLoad = width > 0 && strategy === 'least-queue'
  const wanted = [...workers]
    .filter(([, { bound }]) => bound?.score !== START.score)
    .map(([worker, { queue, running }]) => ({
      worker,
      rank: (isByLoad ? queue.length + running : 0) * ONE_LOAD + worker,
    }))
    .sort((a, b) => a.rank - b.rank)
  if (JSON.stringify(wanted) !== JSON.stringify(open))
    report(
      'open',
      `workers that copies may go to should be ${JSON.stringify(wanted)}, are ${JSON.stringify(open)}`,
    )
}

function checkEligible({ kinds, workers }: IndexSnapshot, report: Report): void {
  const same = (a: readonly number[], b: readonly number[]) => a.join() === b.join()
  for (const [number, kind] of kinds) {
    const wanted = [...workers]
      .filter(
        ([, { tasks, tags, constraintTags }]) =>
          tasks.includes(kind.task) && tags.includes(kind.tag) && constraintTags.includes(kind.constraintTag),
      )
      .map(([worker]) => worker)
      .sort(byNumber)
    if (!same(wanted, kind.workers))
      report('eligible', `kind ${number} should be served by ${wanted}, is by ${kind.workers}`)
  }
  for (const [worker, { plain, limited }] of workers) {
    for (const [name, list, flag] of [
      ['plain', plain, 'isPlain'],
      ['limited', limited, 'hasLimits'],
    ] as const) {
      const wanted = [...kinds].filter(([, kind]) => kind.workers.includes(worker) && kind[flag])
      const numbers = wanted.map(([kind]) => kind).sort(byNumber)
      if (!same(numbers, [...list].sort(byNumber)))
        report('eligible', `worker ${worker} should serve the ${name} kinds ${numbers}, serves ${list}`)
    }
  }
}

/** Whether its jobs are copied into queues; lanes with a key never are. */
const isPlain = (lane: LaneSnapshot, number: number) =>
  lane.limit === null && lane.keyLimit === null && lane.kind === number

export function isBefore(a: Place, b: Place): boolean {
  const [left, right] = [Number(a.score), Number(b.score)]
  return left < right || (left === right && a.id < b.id)
}

const byNumber = (a: number, b: number) => a - b
const toOptional = (text: string | undefined) => (text === undefined ? null : toNumber(text))
const toNumbers = (text: string | undefined) => (text ? toList(text.split(','), toNumber) : [])
/** Of slots: more may be taken than there are. */
const toCount = (text: string | undefined) =>
  text?.startsWith('-') ? -toInteger(text.slice(1)) : toInteger(text)
const toText = (value: unknown) => (typeof value === 'string' ? value : broken('a text', value))

function toFacts(text: string | undefined): Record<string, unknown> {
  try {
    const facts: unknown = JSON.parse(text ?? '')
    if (typeof facts === 'object' && facts !== null) return facts as Record<string, unknown>
  } catch {
    // told below
  }
  return broken('facts', text)
}

/** Replies come flat, nested or as an object, by the protocol and the client. */
function toPairs(reply: unknown): [string, string][] {
  if (!Array.isArray(reply)) return Object.entries(reply as Record<string, string>)
  if (Array.isArray(reply[0])) return reply.map(([name, value]) => [String(name), String(value)])
  return Array.from({ length: reply.length / 2 }, (_, n) => [String(reply[2 * n]), String(reply[2 * n + 1])])
}

const toMap = (reply: unknown) => new Map(toPairs(reply))
