/**
 * Drives the traffic between a worker and its job source: each call settles what has ended and claims what may start. `next-call.ts` decides what is
 * sent and when; here are the calls, their answers and the timer.
 */
import type { ClaimedJob, Outcome } from '../postgres/settle-and-claim.ts'
import { isTransientError } from '../postgres/transient-error.ts'
import type { WorkerSettings } from '../runtime/config.ts'
import type { Logger } from '../runtime/logger.ts'
import { pauseMs } from '../runtime/retry.ts'
import { createBusyOutcomes } from './busy-outcomes.ts'
import { firstBatch, type Pressure } from './claim-size.ts'
import { OutcomeBound, recoveryFrom } from './failed-call.ts'
import { FlowWindow } from './flow-window.ts'
import type { Answer, JobSource } from './job-source.ts'
import type { Meter } from './meter.ts'
import { type LoopState, type NextCall, nextCall } from './next-call.ts'
import { Permits } from './permits.ts'

export interface ExchangeLoop {
  /** Look for jobs now. */
  look(): void
  /** A run has ended; its handler may still be inside. */
  settle(outcome: Outcome): void
  /** A handler has returned: its permit is free. */
  freePermit(): void
  /** Claim nothing while there is a reason not to; what is under way still comes. */
  stopClaims(reason: StopReason): void
  /** This reason is gone. */
  allowClaims(reason: StopReason): void
  /** Resolves when every outcome is settled and no call is under way. */
  idle(): Promise<void>
  /** Resolves when the calls that are under way now have been answered, and their jobs handed on. */
  answered(): Promise<void>
  /** Gives up whatever is not settled. */
  close(): void
}

/** `stopping`: the worker ends. `alone`: a job must run by itself. `drained`: the worker was told to take no more jobs. */
export type StopReason = 'stopping' | 'alone' | 'drained'

const PAUSES = { firstMs: 50, maxMs: 2000 }
/** Claims that hold the slots that this one wanted commit soon; many workers that ask again and again would slow them down. */
const LOOK_AGAIN = { firstMs: 2, maxMs: 50 }

type Changing<T> = { -readonly [Key in keyof T]: T[Key] }

export function createExchangeLoop(options: {
  settings: WorkerSettings
  /** Permits that are taken from the start, by handlers of an earlier life. */
  taken: number
  source: JobSource
  /** Starts the jobs; each takes one permit until `freePermit`. */
  onClaimed: (jobs: ClaimedJob[]) => void
  /** This run is over for Postgres: settled, or its lease was lost. */
  onSettled: (outcome: Outcome) => void
  /** A claim may have been committed without our knowing: its runs must be given back. */
  onUnclearClaim: () => void
  /** Postgres takes this worker for dead. */
  onDead: () => void
  pressure: () => Pressure
  meter: Meter
  logger: Logger
}): ExchangeLoop {
  const { settings, source, logger } = options
  const { claimBatchSize } = settings
  let outcomes: Outcome[] = []
  const bound = new OutcomeBound()
  const permits = new Permits(settings.maxConcurrentTasks, options.taken)
  const flow = new FlowWindow(performance.now())
  const stops = new Set<StopReason>()
  const underWay = new Set<Promise<void>>()
  const awaiting: (() => void)[] = [] // the last outcome to be settled
  let failures = 0 // in a row
  let busyLooks = 0 // in a row
  const timer = createTimer(dueAt => decide(dueAt))
  let isScheduled = false

  const state: Changing<LoopState> = {
    isClosed: false,
    get mayClaim() {
      return stops.size === 0
    },
    pausedUntil: 0,
    get outcomes() {
      return outcomes.length
    },
    get mostOutcomes() {
      return bound.most
    },
    outcomesSince: 0,
    get hasBusyOutcomes() {
      return !busy.isEmpty
    },
    get isAwaited() {
      return awaiting.length > 0
    },
    claims: 0,
    settles: 0,
    permits,
    claimedAt: performance.now(),
    batch: firstBatch(claimBatchSize),
    hasBacklog: false,
    isLimited: false,
    get isFlow() {
      return flow.isFlow
    },
    lookAt: Infinity,
    get looksForFree() {
      return source.looksForFree
    },
    get pressure() {
      return options.pressure()
    },
    limits: settings,
    memory: { mustLook: false, isSaturated: false, isShortOfRoom: false, most: 0 },
  }

  const schedule = () => {
    if (isScheduled || state.isClosed) return
    isScheduled = true
    // Runs that end in one turn of the event loop travel together.
    setImmediate(() => {
      isScheduled = false
      decide()
    })
  }

  /** `from`: a timer may fire a fraction of a millisecond before its time. */
  const decide = (from = 0) => {
    for (;;) {
      const now = Math.max(from, performance.now())
      const next = nextCall(state, now)
      state.memory = next.memory
      if (next.step === 'wait') return rest(next)
      send(next, now)
    }
  }

  const rest = ({ until, isSettled, says }: NextCall & { step: 'wait' }) => {
    timer.wakeAt(until)
    if (isSettled) for (const resolve of awaiting.splice(0)) resolve()
    if (says === 'idle') source.onIdle()
    else if (says === 'full') source.onFull()
  }

  const look = () => {
    state.memory = { ...state.memory, mustLook: true }
  }

  const add = (unsent: readonly Outcome[]) => {
    if (outcomes.length === 0) state.outcomesSince = performance.now()
    outcomes.push(...unsent)
  }

  const send = (call: NextCall & { step: 'call' }, now: number) => {
    const { limit } = call
    const sent = call.outcomes === outcomes.length ? outcomes : outcomes.slice(0, call.outcomes)
    outcomes = sent === outcomes ? [] : outcomes.slice(call.outcomes)
    if (limit > 0) {
      state.claims++
      permits.ask(limit)
      state.claimedAt = now
      state.lookAt = Infinity
      state.memory = { ...state.memory, mustLook: false }
    } else state.settles++
    const answered = exchange(sent, limit).finally(() => underWay.delete(answered))
    underWay.add(answered)
  }

  const exchange = async (sent: Outcome[], limit: number): Promise<void> => {
    const answer = await source.exchange(sent, limit).catch(error => recover(error, sent, limit))
    if (limit > 0) {
      state.claims--
      permits.answered(limit)
    } else state.settles--
    if (answer) accept(sent, limit, answer)
    schedule()
  }

  const accept = (sent: Outcome[], limit: number, { claimed, wait, ...answer }: Answer) => {
    failures = 0
    settled(sent, answer)
    if (wait === 'dead') return options.onDead()
    if (limit > 0) noteClaim(claimed.length, limit, wait)
    if (claimed.length === 0) return
    permits.take(claimed.length)
    state.memory = { ...state.memory, most: Math.max(state.memory.most, permits.taken) }
    source.onClaimed(claimed.length)
    options.onClaimed(claimed)
  }

  const noteClaim = (claimed: number, limit: number, wait: Answer['wait']) => {
    options.meter.claimed(claimed)
    const isFilled = claimed === limit
    state.hasBacklog = wait === 'more' || (isFilled && wait !== 'full')
    state.isLimited = wait === 'full' || wait === 'busy'
    state.batch = isFilled ? Math.min(2 * state.batch, claimBatchSize) : firstBatch(claimBatchSize)
    if (wait !== 'busy') busyLooks = 0
    else state.lookAt = Math.min(state.lookAt, performance.now() + pauseMs(++busyLooks, LOOK_AGAIN))
  }

  const settled = (sent: readonly Outcome[], answer: Pick<Answer, 'busy' | 'lost'>) => {
    bound.settled(sent.length)
    if (answer.lost.size > 0) {
      logger.warn({ jobs: [...answer.lost] }, 'the lease of these jobs was gone when their runs ended')
    }
    for (const outcome of sent) {
      if (answer.busy.has(outcome.id)) busy.add(outcome)
      else options.onSettled(outcome)
    }
  }

  const busy = createBusyOutcomes({
    async settle(sent) {
      try {
        settled(sent, await source.exchange(sent, 0))
      } catch (error) {
        logger.info({ err: error }, 'could not settle jobs whose rows were locked; trying again')
        bound.failed(error, sent.length)
        if (isTransientError(error)) for (const outcome of sent) busy.add(outcome)
        else for (const outcome of sent) await settleAlone(outcome)
      }
    },
    most: () => bound.most,
    onRound: schedule,
  })

  const settleAlone = async (outcome: Outcome) => {
    try {
      settled([outcome], await source.exchange([outcome], 0))
    } catch (error) {
      await recover(error, [outcome], 0)
    }
  }

  const recover = async (error: unknown, sent: Outcome[], limit: number): Promise<void> => {
    if (limit > 0) options.onUnclearClaim()
    bound.failed(error, sent.length)
    const recovery = recoveryFrom(error, sent)
    if (recovery.how === 'one by one') {
      for (const outcome of sent) await settleAlone(outcome)
      return
    }
    if (recovery.isOutage) logger.info({ err: error }, 'could not reach Postgres; trying again')
    else {
      const jobs = sent.map(outcome => outcome.id)
      logger.error({ err: error, jobs }, 'Postgres refused a call; trying again')
    }
    add(recovery.outcomes)
    failures++
    look()
    const now = performance.now()
    if (now >= state.pausedUntil) state.pausedUntil = now + pauseMs(failures, PAUSES)
  }

  return {
    look() {
      look()
      schedule()
    },
    settle(outcome) {
      const now = performance.now()
      if (outcomes.length === 0) state.outcomesSince = now
      outcomes.push(outcome)
      flow.add(now)
      schedule()
    },
    freePermit() {
      // A handler that outlived its run frees a permit without an outcome: nothing else would look.
      if (permits.free()) look()
      schedule()
    },
    stopClaims(reason) {
      stops.add(reason)
      schedule()
    },
    allowClaims(reason) {
      if (!stops.delete(reason)) return
      look()
      schedule()
    },
    async answered() {
      await Promise.allSettled(underWay)
    },
    close() {
      state.isClosed = true
      busy.close()
      timer.stop()
    },
    idle() {
      return new Promise(resolve => {
        awaiting.push(resolve)
        schedule()
      })
    },
  }
}

/** One timer for the earliest of what is waited for. One that is set for an earlier time stays: the decision that follows sets the next. */
function createTimer(fire: (dueAt: number) => void) {
  let timer: NodeJS.Timeout | undefined
  let dueAt = Infinity
  const due = () => {
    const wasDueAt = dueAt
    dueAt = Infinity
    fire(wasDueAt)
  }
  return {
    wakeAt(at: number) {
      if (at >= dueAt) return
      clearTimeout(timer)
      dueAt = at
      timer = setTimeout(due, Math.max(1, Math.ceil(at - performance.now())))
    },
    stop() {
      clearTimeout(timer)
    },
  }
}
