/**
 * Owns the job that must run alone: workers died with it twice, so it starts when no other handler runs. If it kills the
 * worker again, no other job is affected. Meanwhile nothing is claimed, so the wait is bounded: where other handlers do not
 * return within the deadline, or are known to be stuck, the job is given back for another worker, and this one claims again.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { JobId } from '../job/job-id.ts'
import type { Logger } from '../runtime/logger.ts'
import { pauseMs } from '../runtime/retry.ts'
import type { ExchangeLoop } from './exchange-loop.ts'
import type { Run } from './run-job.ts'
import type { StuckHandlers } from './stuck-handlers.ts'

export interface Alone {
  /** Runs it alone, or gives it back. */
  run(run: Run): void
  /** A run is over, or a handler has returned. */
  onChange(): void
  /** The worker ends: what waits is given back. */
  end(): void
}

/** How long a job waits for the outcomes of the others to be settled: a user's transaction may lock one of their rows for minutes. */
const SETTLE_MS = 2000
/** How soon a job that was given back may be claimed again: by another worker, it is hoped, which mostly wins one of the first tries. */
const GIVEN_BACK = { firstMs: 100, maxMs: 30_000 }
const MOST_KNOWN = 1000
/** A worker that has waited without success waits again when it has been empty, or after so many times the deadline: so it claims for most of the time. */
const REST_FACTOR = 10

export function createAlone(options: {
  deadlineMs: number
  loop: () => Pick<ExchangeLoop, 'stopClaims' | 'allowClaims' | 'answered' | 'idle'>
  /** Handlers that have not returned, and the job that waits to run alone. */
  inside: () => number
  /** Resolves when the jobs of answered claims have started. */
  claimsStarted: () => Promise<unknown>
  start: (run: Run) => void
  stuck: StuckHandlers
  /** This job waits to run alone, or none. */
  onWaiting: (job: JobId | null) => void
  logger: Logger
}): Alone {
  const { deadlineMs, inside, stuck, logger } = options
  let lonely: Run | undefined
  let isEnding = false
  let wake: () => void = () => undefined
  let waitsAgainAt = 0
  const givenBack = new Map<JobId, number>()

  /** Resolves when `isTrue`, which is asked at each change, or when the time is up. */
  const until = async (isTrue: () => boolean, ms?: number): Promise<void> => {
    let isLate = false
    const late = () => {
      isLate = true
      wake()
    }
    const timer = ms === undefined ? undefined : setTimeout(late, ms)
    while (!isTrue() && !isLate)
      await new Promise<void>(resolve => {
        wake = resolve
      })
    clearTimeout(timer)
  }

  const giveBack = (run: Run) => {
    const { id } = run.claimed
    const times = (givenBack.get(id) ?? 0) + 1
    if (givenBack.size >= MOST_KNOWN) givenBack.clear()
    givenBack.set(id, times)
    const delayMs = pauseMs(times, GIVEN_BACK)
    const told = { job: id, stuck: stuck.count, oldest: stuck.oldest, others: inside() - 1, delayMs }
    const what =
      'a job that must run alone was given back, because handlers of this worker have not returned; another worker may run it. Restart this worker if its handlers are stuck'
    if (times === 1) logger.warn(told, what)
    else logger.info(told, what)
    run.giveUp(delayMs)
  }

  const waitForOthers = async (run: Run): Promise<boolean> => {
    const loop = options.loop()
    let areStarted = false
    // What claims under way bring runs before.
    loop
      .answered()
      .then(options.claimsStarted)
      .then(() => {
        areStarted = true
        wake()
      })
    const isFree = () => areStarted && inside() === 1
    await until(() => isFree() || run.isOver || stuck.count > 0, deadlineMs)
    if (!isFree() || run.isOver) return false
    // What has ended would run again if this one took the process with it before it is settled.
    await Promise.race([loop.idle(), pause(SETTLE_MS, undefined, { ref: false })])
    return true
  }

  const runAlone = async (run: Run) => {
    const loop = options.loop()
    lonely = run
    loop.stopClaims('alone')
    options.onWaiting(run.claimed.id)
    logger.info({ job: run.claimed.id }, 'a job that was rescued twice waits to run alone')
    const isAlone = await waitForOthers(run)
    options.onWaiting(null)
    if (isEnding) run.giveUp()
    else if (isAlone) {
      options.start(run)
      await until(() => run.isOver)
      // Its handler may still be inside.
      await until(() => inside() === 0 || stuck.count > 0, deadlineMs)
    } else if (!run.isOver) {
      waitsAgainAt = performance.now() + REST_FACTOR * deadlineMs
      giveBack(run)
    }
    lonely = undefined
    loop.allowClaims('alone')
  }

  return {
    run(run) {
      // Two cannot wait for each other here: the one that waits would be rescued with the other.
      if (lonely) run.giveUp()
      else if (stuck.count > 0 || performance.now() < waitsAgainAt) giveBack(run)
      else runAlone(run).catch(error => logger.error({ err: error }, 'running a job alone failed'))
    },
    onChange() {
      if (waitsAgainAt > 0 && inside() === 0) waitsAgainAt = 0
      wake()
    },
    end() {
      isEnding = true
      if (lonely && !lonely.hasStarted) lonely.giveUp()
    },
  }
}
