/**
 * What a worker asks of its job source next: a pure decision over what it knows at this moment, in one of these modes.
 *
 * | mode          | when                                            | claims at once          | outcomes                                  |
 * |---------------|-------------------------------------------------|-------------------------|-------------------------------------------|
 * | closed        | the worker has ended                            | none                    | not sent                                  |
 * | paused        | a call failed, and the pause is not over        | none                    | wait                                      |
 * | settling only | stopping, drained, or a job is to run alone     | none                    | sent at once                              |
 * | backlog       | the last claim left jobs behind                 | 2, while there is room  | travel with a claim                       |
 * | flowing       | many runs end, and nothing was left behind      | 1, when it is to look   | travel with a claim, or alone within 3 ms |
 * | idle          | few runs end, and nothing was left behind       | 2, when it is to look   | sent at once                              |
 *
 * Two calls at once: one costs 40 %, four gain nothing. A call that only settles does not keep a claim waiting. In every mode
 * that claims the worker may be *short of room* (few permits are free, or memory is short): then it claims nothing until runs
 * have ended, or it has waited for long.
 */
import {
  batchSize,
  claimSize,
  followers,
  holdable,
  isCritical,
  isSaturated,
  type Pressure,
  type PressureLimits,
  pressureFactor,
} from './claim-size.ts'
import type { Permits } from './permits.ts'

export type Mode = 'closed' | 'paused' | 'settling only' | 'backlog' | 'flowing' | 'idle'

/** Times are those of `performance.now()`; `Infinity`: never. */
export interface LoopState {
  readonly isClosed: boolean
  readonly mayClaim: boolean
  /** A call has failed: nothing is sent before. */
  readonly pausedUntil: number
  /** How many outcomes wait to be sent, how many may travel in one call, and since when the first of them waits. */
  readonly outcomes: number
  readonly mostOutcomes: number
  readonly outcomesSince: number
  /** Some are settled apart, because their rows were locked. */
  readonly hasBusyOutcomes: boolean
  /** Something waits for the last outcome to be settled. */
  readonly isAwaited: boolean
  /** Calls under way that ask for jobs, and those that only settle. */
  readonly claims: number
  readonly settles: number
  readonly permits: Readonly<Permits>
  /** When the last claim was sent, and how many jobs the next may ask for while nothing else is known. */
  readonly claimedAt: number
  readonly batch: number
  /** The last claim left jobs behind; it found too few slots of a limit. */
  readonly hasBacklog: boolean
  readonly isLimited: boolean
  readonly isFlow: boolean
  /** When it is to look again, because others were taking what the last claim wanted. */
  readonly lookAt: number
  /** To look for jobs beside settling costs nothing: it is done even when none are expected. */
  readonly looksForFree: boolean
  readonly pressure: Pressure
  readonly limits: PressureLimits & { readonly claimBatchSize: number }
  readonly memory: Memory
}

/** What the next decision must know of the ones before. */
export interface Memory {
  /** There may be jobs. */
  readonly mustLook: boolean
  /** Few permits are free, and not yet enough again. */
  readonly isSaturated: boolean
  /** It claims nothing although it could: few permits are free, or memory is short. */
  readonly isShortOfRoom: boolean
  /** The most jobs that it has had at once while memory was not short. */
  readonly most: number
}

export type Step =
  /** Send this many outcomes, and ask for this many jobs. */
  | { readonly step: 'call'; readonly outcomes: number; readonly limit: number }
  | {
      readonly step: 'wait'
      /** Decide again then, if nothing happens before. */
      readonly until: number
      /** Nothing is under way, and every outcome is settled. */
      readonly isSettled: boolean
      /** Nothing is under way: a permit is free, or the worker had better take no more jobs. */
      readonly says: 'idle' | 'full' | undefined
    }

export type NextCall = Step & { readonly mode: Mode; readonly memory: Memory }

const CALLS_AT_ONCE = 2
const CLAIMS_AT_ONCE: Readonly<Record<Mode, number>> = {
  closed: 0,
  paused: 0,
  'settling only': 0,
  backlog: CALLS_AT_ONCE,
  flowing: 1,
  idle: CALLS_AT_ONCE,
}
const SETTLE_WITHIN_MS = 3
/** How long permits may lie idle because they are few: long enough for other runs to end, too short to matter. */
const FEW_FREE_MS = 100
/** How long a worker that is short of memory waits for a run to end before it takes one more all the same. */
const SHORT_OF_MEMORY_MS = 1000

export function modeOf(state: LoopState, now: number): Mode {
  if (state.isClosed) return 'closed'
  if (now < state.pausedUntil) return 'paused'
  if (!state.mayClaim) return 'settling only'
  if (state.hasBacklog) return 'backlog'
  return state.isFlow ? 'flowing' : 'idle'
}

export function nextCall(state: LoopState, now: number): NextCall {
  const mode = modeOf(state, now)
  const waiting = { step: 'wait', mode, isSettled: false, says: undefined, until: Infinity } as const
  if (mode === 'closed') return { ...waiting, memory: state.memory }
  const isAtRest = state.claims + state.settles === 0 && state.outcomes === 0
  const isSettled = isAtRest && !state.hasBusyOutcomes
  if (mode === 'paused') return { ...waiting, isSettled, until: state.pausedUntil, memory: state.memory }

  const mayClaim = state.claims < CLAIMS_AT_ONCE[mode]
  const { limit, memory, until } = mayClaim ? roomOf(state, now) : noRoom(state.memory)
  const wantsJobs = limit > 0 && (memory.mustLook || state.hasBacklog || state.lookAt <= now)
  const maySettle =
    (mayClaim || mode === 'settling only') &&
    state.claims + state.settles < CALLS_AT_ONCE &&
    state.outcomes > 0
  const settleBy = mode !== 'settling only' && state.isFlow && !state.isAwaited ? settlesBy(state) : now
  if (wantsJobs || maySettle) {
    const asked = wantsJobs || state.looksForFree ? limit : 0
    if (asked > 0 || settleBy <= now) {
      const outcomes = Math.min(state.outcomes, state.mostOutcomes)
      return { step: 'call', mode, outcomes, limit: asked, memory }
    }
  }
  return {
    ...waiting,
    memory,
    until: Math.min(until, later(state.lookAt, now), maySettle ? settleBy : Infinity),
    isSettled,
    says: isAtRest && mode !== 'settling only' ? saysOf(state.permits, memory) : undefined,
  }
}

/** What was due already waits for an answer that is under way. */
const later = (at: number, now: number) => (at > now ? at : Infinity)

const settlesBy = (state: LoopState) => state.outcomesSince + SETTLE_WITHIN_MS

const saysOf = (permits: Readonly<Permits>, memory: Memory) =>
  permits.areAllTaken || memory.isShortOfRoom ? 'full' : 'idle'

interface FoundRoom {
  /** How many jobs the next claim may ask for. */
  readonly limit: number
  readonly memory: Memory
  /** When there is room all the same. */
  readonly until: number
}

const noRoom = (memory: Memory): FoundRoom => ({ limit: 0, memory, until: Infinity })

function roomOf(state: LoopState, now: number): FoundRoom {
  const { permits, pressure, limits, memory } = state
  const { max, taken, asked, ended } = permits
  // With nothing left behind there is no batch to wait for: a lone job starts at once.
  const isNearlyFull = state.hasBacklog && isSaturated(memory.isSaturated, max - taken, max)
  const isShortOfMemory = isCritical(pressure, limits)
  const factor = pressureFactor(pressure, limits)
  const isOverThreshold = pressure.memory > limits.memoryThreshold
  const most = isOverThreshold ? Math.min(memory.most, taken) : memory.most
  const mayHave = Math.max(limits.claimBatchSize, holdable(most, pressure, limits))
  const overdueAt = state.claimedAt + (isShortOfMemory ? SHORT_OF_MEMORY_MS : FEW_FREE_MS)
  const limit = claimSize({
    free: max - taken - asked,
    asked,
    more: mayHave - taken - asked,
    batch: factor < 1 ? state.batch : batchSize(state.batch, followers(ended, state)),
    isSaturated: isNearlyFull,
    factor,
    isCritical: isShortOfMemory,
    ended,
    isOverdue: now >= overdueAt,
  })
  const isShortOfRoom = limit === 0 && (isNearlyFull || isShortOfMemory)
  return {
    limit,
    memory: {
      // While it claimed nothing no bell has told it of jobs.
      mustLook: memory.mustLook || (memory.isShortOfRoom && !isShortOfRoom),
      isSaturated: isNearlyFull,
      isShortOfRoom,
      most,
    },
    until: isShortOfRoom && taken < max ? later(overdueAt, now) : Infinity,
  }
}
