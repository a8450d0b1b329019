/** Owns the plan of a run: which faults, when, on whom and for how long. A pure function of the seed. */
import { type Random, seeded } from '../support/graph-load.ts'
import { HAD, type Limits } from './tasks.ts'

export type StoreName = 'postgres' | 'redis'

/** `at`: milliseconds from the start. `slot`: the process that has this place at the time. */
export type Fault = { at: number } /** SIGKILL; another one begins `ms` later. */ & (
  | { kind: 'kill'; slot: string; ms: number }
  /** SIGTERM; another one begins when it has left. */
  | { kind: 'stop'; slot: string }
  /** SIGSTOP, SIGCONT. */
  | { kind: 'pause'; slot: string; ms: number }
  | { kind: 'clock'; slot: string; offsetMs: number }
  | { kind: 'properties'; slot: string; had: Record<string, string>; ms: number }
  /** It takes no jobs for a while. */
  | { kind: 'drain'; slot: string; ms: number }
  | { kind: 'limits'; limits: Limits }
  /** How jobs are spread over workers. */
  | { kind: 'spread'; mode: 'fanout' | 'balanced'; strategy: 'least-queue' | 'round-robin' | 'random' }
  /** Redis forgets all it holds, or its scripts. */
  | { kind: 'flush'; command: 'FLUSHALL' | 'SCRIPT' }
  /** Killed, and after `ms` started again, Redis without anything. */
  | { kind: 'crash'; store: StoreName; ms: number }
  /** Connections of one process, or of all, to a store. */
  | { kind: 'cut'; store: StoreName; slot?: string }
  | { kind: 'hole'; store: StoreName; slot?: string; ms: number; isCutAfter: boolean }
  /** Half open: what goes one way is lost without a word, and its connection stays useless. */
  | { kind: 'swallow'; store: StoreName; slot: string; direction: 'requests' | 'replies'; ms: number }
  | { kind: 'slow'; store: StoreName; slot?: string; ms: number; byMs: number }
  /** The next call with this in it is done or not, and its caller does not learn which. */
  | { kind: 'lose'; slot: string; text: string; isDone: boolean }
)

export interface Cast {
  workers: readonly string[]
  relays: readonly string[]
  producers: readonly string[]
  /** Never killed nor stopped, so that their memory can be watched. */
  spared: readonly string[]
}

/** How often each kind comes, against the others. */
const WEIGHTS: Record<Fault['kind'], number> = {
  kill: 6,
  stop: 2,
  pause: 5,
  clock: 2,
  properties: 3,
  drain: 1,
  limits: 3,
  spread: 1,
  flush: 3,
  crash: 2,
  cut: 4,
  hole: 4,
  slow: 3,
  swallow: 2,
  lose: 6,
}
const KINDS = Object.keys(WEIGHTS) as Fault['kind'][]
const STORES: readonly StoreName[] = ['postgres', 'redis']
const ON_STORES = new Set<Fault['kind']>(['crash', 'cut', 'hole', 'slow', 'swallow'])
const BETWEEN_MS = 900
/** What befalls everybody comes one at a time, with time to recover. */
const BETWEEN_GREAT_MS = 6000
const GREAT_MS = 5500
/** In a long run now and then nothing is done for a while, and the doctor looks at what goes on. */
const QUIET_EVERY_MS = 240_000
const QUIET_MS = 25_000
/** For the doctor to look, on a slow machine. */
const CHECKUP_MS = 15_000
/** Nothing begins in the last moments, so that it is over when the faults are to stop. */
const LAST_MS = 3000
/** What hangs on a half open connection gives up after half a minute. */
const LAST_SWALLOW_MS = 30_000
const CLOCKS_MS = [0, 500, -500, 60_000, -60_000, 3_600_000, -3_600_000, 86_400_000, -86_400_000]
const LOST_BY_WORKERS = ['settle_and_claim', 'settle_and_claim', 'commit', '.beat(']
const LOST_BY_PRODUCERS = ['enqueue_', 'enqueue_', 'commit', 'add_to_group']

/** When it has been quiet for long enough that nothing may be wrong. */
export function quietMoments(durationMs: number): number[] {
  const count = Math.floor((durationMs - QUIET_MS) / QUIET_EVERY_MS)
  return Array.from({ length: Math.max(0, count) }, (_, n) => (n + 1) * QUIET_EVERY_MS)
}

export function planFaults(seed: number, durationMs: number, cast: Cast): Fault[] {
  const random = seeded(seed)
  const faults: Fault[] = []
  // Each kind once on each store, in an order of the seed's, before chance decides.
  const first = KINDS.flatMap(kind =>
    (ON_STORES.has(kind) ? STORES : [undefined]).map(store => ({ kind, store })),
  )
    .map(wanted => ({ wanted, order: random() }))
    .sort((a, b) => a.order - b.order)
    .map(({ wanted }) => wanted)
  const quiet = quietMoments(durationMs)
  let nextGreat = 0
  for (let at = 2000; at < durationMs - LAST_MS; at += BETWEEN_MS * 2 * random()) {
    if (quiet.some(moment => at > moment - QUIET_MS && at < moment + CHECKUP_MS)) continue
    const wanted = first.shift() ?? { kind: pickKind(random), store: undefined }
    const store = wanted.store ?? (random() < 0.5 ? 'postgres' : 'redis')
    const fault = { at: Math.round(at), ...makeFault(wanted.kind, store, random, cast) } as Fault
    if (fault.kind === 'swallow' && at > durationMs - LAST_SWALLOW_MS) continue
    if (isGreat(fault)) {
      if (at < nextGreat) {
        first.push(wanted)
        continue
      }
      nextGreat = at + BETWEEN_GREAT_MS
    }
    faults.push(fault)
  }
  return faults
}

const isGreat = (fault: Fault) =>
  fault.kind === 'crash' || (fault.kind === 'hole' && fault.slot === undefined)

function pickKind(random: Random): Fault['kind'] {
  let dice = random() * Object.values(WEIGHTS).reduce((sum, weight) => sum + weight, 0)
  for (const kind of KINDS) {
    dice -= WEIGHTS[kind]
    if (dice < 0) return kind
  }
  return 'kill'
}

function makeFault(kind: Fault['kind'], store: StoreName, random: Random, cast: Cast): object {
  const below = (n: number) => Math.floor(random() * n)
  const pick = <T>(list: readonly T[]): T => list[below(list.length)] as T
  const all = [...cast.workers, ...cast.workers, ...cast.relays, ...cast.producers]
  const mortal = all.filter(slot => !cast.spared.includes(slot))
  const slot = pick(all)
  /** Mostly one process, sometimes everybody. */
  const whose = random() < 0.75 ? { slot } : {}
  switch (kind) {
    case 'kill':
      return { kind, slot: pick(mortal), ms: below(2500) }
    case 'stop':
      return { kind, slot: pick(mortal.filter(name => !cast.producers.includes(name))) }
    case 'pause':
      // For a moment, or for longer than any lease.
      return { kind, slot, ms: random() < 0.4 ? below(500) : 4500 + below(5000) }
    case 'clock':
      return { kind, slot, offsetMs: pick(CLOCKS_MS) }
    case 'properties':
      return { kind, slot: pick(cast.workers), had: pick(HAD), ms: 2000 + below(4000) }
    case 'drain':
      return { kind, slot: pick(cast.workers), ms: 500 + below(3000) }
    case 'spread':
      return {
        kind,
        mode: pick(['fanout', 'balanced']),
        strategy: pick(['least-queue', 'round-robin', 'random']),
      }
    case 'limits':
      return { kind, limits: { capped: 2 + below(10), tenant: 3 + below(10), perTenant: 1 + below(3) } }
    case 'flush':
      return { kind, command: pick(['FLUSHALL', 'FLUSHALL', 'SCRIPT']) }
    case 'crash':
      return { kind, store, ms: below(2000) }
    case 'cut':
      return { kind, store, ...whose }
    case 'hole':
      return { kind, store, ...whose, ms: 500 + below(GREAT_MS), isCutAfter: random() < 0.5 }
    case 'swallow':
      return { kind, store, slot, direction: pick(['requests', 'replies']), ms: below(2000) }
    case 'slow':
      return { kind, store, ...whose, ms: 1000 + below(5000), byMs: 5 + below(150) }
    case 'lose': {
      const isProducer = random() < 0.6
      return {
        kind,
        slot: pick(isProducer ? cast.producers : cast.workers),
        text: pick(isProducer ? LOST_BY_PRODUCERS : LOST_BY_WORKERS),
        isDone: random() < 0.7,
      }
    }
  }
}
