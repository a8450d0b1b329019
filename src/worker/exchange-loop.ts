/**
 * Owns the traffic between a worker and Postgres: each call settles what has ended and claims what may start. At most
 * two calls are under way (one costs 40 %, four gain nothing); what ends meanwhile makes up the next one. Calls that only settle
 * do not keep a claim waiting, and while jobs flow what has ended waits a moment for a claim to travel with.
 */
import { messageOf, storedError } from '../job/stored-error.ts'
import type { ClaimedJob, Exchange, Outcome } from '../postgres/settle-and-claim.ts'
import { isDataError, isTransientError, tookTooLong } from '../postgres/transient-error.ts'
import type { WorkerSettings } from '../runtime/config.ts'
import type { Logger } from '../runtime/logger.ts'
import { pauseMs } from '../runtime/retry.ts'
import {
  batchSize,
  claimSize,
  firstBatch,
  followers,
  holdable,
  isCritical,
  isSaturated,
  type Pressure,
  pressureFactor,
} from './claim-size.ts'
import type { Meter } from './meter.ts'

export interface ExchangeLoop {
  /** Look for jobs now. */
  look(): void
  /** A run has ended; its handler may still be inside. */
  settle(outcome: Outcome): void
  /** A handler has returned: its permit is free. */
  freePermit(): void
  stopClaiming(): void
  /** Claim nothing until each reason is taken back; what is under way still comes. */
  holdClaims(reason: HoldReason, isHeld: boolean): void
  /** Resolves when every outcome is settled and no call is under way. */
  idle(): Promise<void>
  /** Resolves when the calls that are under way now have been answered, and their jobs handed on. */
  answered(): Promise<void>
  /** Gives up whatever is not settled. */
  close(): void
}

/** `alone`: a job must run by itself. `drained`: somebody wants this worker to take no more. */
export type HoldReason = 'alone' | 'drained'

const IN_FLIGHT = 2
const MOST_OUTCOMES = 1000
/** Jobs flow when so many runs end in a window. Then most settles travel with a claim: half as many commits. */
const FLOW_WINDOW_MS = 100
const FLOW_RUNS = 50
const SETTLE_WITHIN_MS = 3
const PAUSES = { firstMs: 50, maxMs: 2000 }
const BUSY_FIRST_MS = 5
const BUSY_MAX_MS = 1000
/** Whoever holds slots that a claim wanted commits soon; a crowd that asks again and again would slow it down. */
const LOOK_AGAIN = { firstMs: 2, maxMs: 50 }
/** How long permits may lie idle because they are few: long enough for others to end, too short for anybody to wait for. */
const FEW_FREE_MS = 100
/** How long a worker that is short of memory waits for a run to end before it takes one more all the same. */
const SHORT_OF_MEMORY_MS = 1000

export function createExchangeLoop(options: {
  settings: WorkerSettings
  /** Permits that are taken from the start, by handlers of an earlier life. */
  taken: number
  exchange: (outcomes: readonly Outcome[], limit: number) => Promise<Exchange>
  /** Whether looking for jobs beside settling costs nothing, so that it is done even when none are expected. */
  looksForFree: () => boolean
  /** Starts the jobs; each takes one permit until `freePermit`. */
  onClaimed: (jobs: ClaimedJob[]) => void
  /** This run is over for Postgres: settled, or its lease was lost. */
  onSettled: (outcome: Outcome) => void
  /** A claim may have been committed without our knowing: runs nobody works on must be given back. */
  onUnclearClaim: () => void
  /** Postgres takes this worker for dead. */
  onDead: () => void
  /** No call is under way and a permit is free. */
  onIdle: () => void
  /** Every permit is taken, or the worker had better take no more: others should be woken. */
  onFull: () => void
  pressure: () => Pressure
  meter: Meter
  logger: Logger
}): ExchangeLoop {
  const { settings, logger } = options
  let outcomes: Outcome[] = []
  let mostOutcomes = MOST_OUTCOMES // in one call; fewer where that took Postgres longer than it may
  const busy: Outcome[] = [] // somebody held their rows
  let busyTimer: NodeJS.Timeout | undefined
  let busyRounds = 0
  let calls = 0
  let settles = 0 // calls that only settle
  let window = { since: performance.now(), ended: 0, isFlow: false }
  let settleSoon: NodeJS.Timeout | undefined
  let mustSettle = false
  const underWay = new Set<Promise<void>>()
  const max = settings.maxConcurrentTasks
  let taken = options.taken // permits: jobs whose handler has not returned
  let reserved = 0 // permits asked for in calls under way
  let batch = firstBatch(settings.claimBatchSize)
  let hasBacklog = false // the last claim came back full
  let isLimited = false // the last claim found no slots, or not enough
  let mustLook = false
  let isClaiming = true
  const holds = new Set<HoldReason>()
  let lookAgain: NodeJS.Timeout | undefined
  let busyLooks = 0 // in a row
  let most = 0 // jobs that it has held at once, while memory was not short
  let isNearlyFull = false
  let isHeldBack = false // by few permits or short memory
  let ended = 0 // since the last claim
  let claimedAt = performance.now()
  let notForLong: NodeJS.Timeout | undefined
  let isClosed = false
  let isScheduled = false
  let failures = 0
  let pausedUntil: NodeJS.Timeout | undefined
  const onSettled: (() => void)[] = []

  const schedule = () => {
    if (isScheduled || isClosed) return
    isScheduled = true
    // Runs that end in one turn of the event loop travel together.
    setImmediate(() => {
      isScheduled = false
      pump()
    })
  }

  const pump = () => {
    while (calls - settles < claimsAtOnce() && !pausedUntil) {
      const limit = isClaiming && holds.size === 0 ? room() : 0
      const wantsJobs = limit > 0 && (mustLook || hasBacklog)
      if (!wantsJobs && (outcomes.length === 0 || calls >= IN_FLIGHT)) break
      const asked = wantsJobs || options.looksForFree() ? limit : 0
      if (asked === 0 && maySettleLater()) break
      if (asked > 0) {
        mustLook = false
        claimedAt = performance.now()
        ended = 0
      }
      const sent = outcomes.length <= mostOutcomes ? outcomes : outcomes.slice(0, mostOutcomes)
      outcomes = sent === outcomes ? [] : outcomes.slice(mostOutcomes)
      calls++
      if (asked === 0) settles++
      mustSettle = false
      reserved += asked
      call(sent, asked)
    }
    if (calls > 0 || outcomes.length > 0) return
    if (busy.length === 0 && !busyTimer) for (const resolve of onSettled.splice(0)) resolve()
    if (!isClaiming || holds.size > 0 || pausedUntil) return
    if (taken < max && !isHeldBack) options.onIdle()
    else options.onFull()
  }

  /** While jobs flow and none are left behind, one: what comes meanwhile travels together. */
  const claimsAtOnce = () => (window.isFlow && !hasBacklog ? 1 : IN_FLIGHT)

  const maySettleLater = (): boolean => {
    if (mustSettle || !window.isFlow || !isClaiming || holds.size > 0 || onSettled.length > 0) return false
    settleSoon ??= setTimeout(() => {
      settleSoon = undefined
      mustSettle = true
      schedule()
    }, SETTLE_WITHIN_MS)
    return true
  }

  /** How many jobs the next claim may ask for. */
  const room = (): number => {
    // With nothing left behind there is no batch to wait for: a lone job starts at once.
    isNearlyFull = hasBacklog && isSaturated(isNearlyFull, max - taken, max)
    const pressure = options.pressure()
    const factor = pressureFactor(pressure, settings)
    const isShort = isCritical(pressure, settings)
    if (pressure.memory > settings.memoryThreshold) most = Math.min(most, taken)
    const mayHold = Math.max(settings.claimBatchSize, holdable(most, pressure, settings))
    const patience = isShort ? SHORT_OF_MEMORY_MS : FEW_FREE_MS
    const sinceClaim = performance.now() - claimedAt
    const limit = claimSize({
      free: max - taken - reserved,
      asked: reserved,
      more: mayHold - taken - reserved,
      batch: factor < 1 ? batch : batchSize(batch, followers(ended, { hasBacklog, isLimited })),
      isSaturated: isNearlyFull,
      factor,
      isCritical: isShort,
      ended,
      isOverdue: sinceClaim >= patience,
    })
    const wasHeldBack = isHeldBack
    isHeldBack = limit === 0 && (isNearlyFull || isShort)
    // Nobody woke it meanwhile.
    if (wasHeldBack && !isHeldBack) mustLook = true
    if (isHeldBack && taken < max) lookWhenOverdue(patience - sinceClaim)
    return limit
  }

  const lookWhenOverdue = (ms: number) => {
    if (isClosed) return
    notForLong ??= setTimeout(
      () => {
        notForLong = undefined
        schedule()
      },
      Math.max(1, ms),
    )
  }

  const call = (sent: Outcome[], limit: number) => {
    const answered = exchange(sent, limit).finally(() => underWay.delete(answered))
    underWay.add(answered)
  }

  const exchange = async (sent: Outcome[], limit: number): Promise<void> => {
    const answer = await options.exchange(sent, limit).catch(error => recover(error, sent, limit))
    calls--
    if (limit === 0) settles--
    reserved -= limit
    if (answer) accept(sent, limit, answer)
    schedule()
  }

  const accept = (sent: Outcome[], limit: number, { claimed, wait, ...answer }: Exchange) => {
    failures = 0
    settled(sent, answer)
    if (wait === 'dead') return options.onDead()
    if (limit > 0) {
      options.meter.claimed(claimed.length)
      const isFilled = claimed.length === limit
      hasBacklog = wait === 'more' || (isFilled && wait !== 'full')
      isLimited = wait === 'full' || wait === 'busy'
      batch = isFilled ? Math.min(2 * batch, settings.claimBatchSize) : firstBatch(settings.claimBatchSize)
      if (wait === 'busy') lookSoon()
      else busyLooks = 0
    }
    if (claimed.length === 0) return
    taken += claimed.length
    most = Math.max(most, taken)
    options.onClaimed(claimed)
  }

  const lookSoon = () => {
    lookAgain ??= setTimeout(
      () => {
        lookAgain = undefined
        mustLook = true
        schedule()
      },
      pauseMs(++busyLooks, LOOK_AGAIN),
    )
  }

  const settled = (sent: readonly Outcome[], answer: Pick<Exchange, 'busy' | 'lost'>) => {
    if (sent.length === mostOutcomes) mostOutcomes = Math.min(MOST_OUTCOMES, Math.ceil(1.1 * mostOutcomes))
    if (answer.lost.size > 0) {
      logger.warn({ jobs: [...answer.lost] }, 'the lease of these jobs was gone when their runs ended')
    }
    for (const outcome of sent) {
      if (answer.busy.has(outcome.id)) busy.push(outcome)
      else options.onSettled(outcome)
    }
    settleBusySoon()
  }

  /**
   * Rows that somebody holds are settled apart, with growing pauses: whoever holds them may do so for minutes, and
   * must not slow down the others.
   */
  const settleBusySoon = () => {
    if (busy.length === 0 || busyTimer || isClosed) return
    busyTimer = setTimeout(
      async () => {
        const before = busy.length
        const sent = busy.splice(0, mostOutcomes)
        try {
          settled(sent, await options.exchange(sent, 0))
        } catch (error) {
          logger.info({ err: error }, 'could not settle jobs that somebody held; trying again')
          settleFewer(error, sent)
          if (isTransientError(error)) busy.push(...sent)
          else for (const outcome of sent) await settleAlone(outcome)
        }
        busyTimer = undefined
        busyRounds = busy.length < before ? 0 : busyRounds + 1
        settleBusySoon()
        schedule()
      },
      Math.min(BUSY_MAX_MS, BUSY_FIRST_MS * 2 ** Math.min(busyRounds, 10)),
    )
  }

  /** The same again would take as long again, for ever. */
  const settleFewer = (error: unknown, sent: readonly Outcome[]) => {
    if (sent.length > 1 && tookTooLong(error)) mostOutcomes = Math.ceil(sent.length / 2)
  }

  const recover = async (error: unknown, sent: Outcome[], limit: number): Promise<void> => {
    if (limit > 0) options.onUnclearClaim()
    settleFewer(error, sent)
    if (isTransientError(error)) {
      logger.info({ err: error }, 'could not reach Postgres; trying again')
      outcomes.push(...sent)
    } else if (sent.length > 1) {
      // One bad outcome must not hold up its neighbours.
      for (const outcome of sent) await settleAlone(outcome)
      return
    } else {
      logger.error(
        { err: error, jobs: sent.map(outcome => outcome.id) },
        'Postgres refused a call; trying again',
      )
      outcomes.push(...sent.map(outcome => replaceRefused(outcome, error)))
    }
    failures++
    if (pausedUntil || isClosed) return
    mustLook = true
    pausedUntil = setTimeout(
      () => {
        pausedUntil = undefined
        schedule()
      },
      pauseMs(failures, PAUSES),
    )
  }

  const settleAlone = async (outcome: Outcome) => {
    try {
      settled([outcome], await options.exchange([outcome], 0))
    } catch (error) {
      await recover(error, [outcome], 0)
    }
  }

  return {
    look() {
      mustLook = true
      schedule()
    },
    settle(outcome) {
      outcomes.push(outcome)
      window.ended++
      const now = performance.now()
      if (now - window.since > FLOW_WINDOW_MS) {
        const isFlow = window.ended >= FLOW_RUNS && now - window.since < 2 * FLOW_WINDOW_MS
        window = { since: now, ended: 0, isFlow }
      }
      schedule()
    },
    freePermit() {
      // A handler that outlived its run frees a permit without an outcome: nothing else would look.
      if (taken-- === max) mustLook = true
      ended++
      schedule()
    },
    stopClaiming() {
      isClaiming = false
      schedule()
    },
    holdClaims(reason, isHeld) {
      if (isHeld === holds.has(reason)) return
      if (isHeld) holds.add(reason)
      else if (holds.delete(reason)) mustLook = true
      schedule()
    },
    async answered() {
      await Promise.allSettled(underWay)
    },
    close() {
      isClosed = true
      clearTimeout(busyTimer)
      clearTimeout(pausedUntil)
      clearTimeout(lookAgain)
      clearTimeout(notForLong)
      clearTimeout(settleSoon)
    },
    idle() {
      return new Promise(resolve => {
        onSettled.push(resolve)
        schedule()
      })
    },
  }
}

/** What Postgres will not take as it is ends as a failure that says so. */
function replaceRefused(outcome: Outcome, error: unknown): Outcome {
  if (!isDataError(error)) return outcome
  const { id, leaseToken } = outcome
  switch (outcome.kind) {
    case 'succeeded': {
      if (outcome.result === null) return outcome
      const message = `the handler succeeded, but Postgres refused its result: ${messageOf(error)}`
      return { id, leaseToken, kind: 'failed', error: storedError('RESULT_REFUSED', message) }
    }
    case 'failed':
    case 'retry':
      return { ...outcome, error: storedError(outcome.error.code, 'the error itself could not be stored') }
    case 'released':
      return outcome
  }
}
