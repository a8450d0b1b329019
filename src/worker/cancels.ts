/** Fires the signals of runs that were cancelled, whenever the worker is told that there are any. */
import { LongshoreError } from '../job/errors.ts'
import type { Lease } from '../postgres/settle-and-claim.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Runs } from './runs.ts'

export interface Cancels {
  look(): void
  /** Looks only when told from now on. */
  stop(): void
}

/** How soon a cancelled job that is not known yet is looked for again. */
const LOOK_AGAIN_MS = 250

export function createCancels(options: {
  read: () => Promise<readonly Lease[]>
  runs: Pick<Runs, 'abort'>
  logger: Logger
}): Cancels {
  let again: NodeJS.Timeout | undefined
  let isStopped = false

  const look = () => {
    options
      .read()
      .then(abort, error =>
        options.logger.info(
          { err: error },
          'could not read which jobs were cancelled; the next beat asks again',
        ),
      )
  }

  const abort = (cancelled: readonly Lease[]) => {
    const unknown = cancelled.filter(
      lease =>
        !options.runs.abort(lease, new LongshoreError('JOB_CANCELLED', `job ${lease.id} was cancelled`)),
    )
    if (unknown.length === 0 || isStopped) return
    // Claimed, but the claim's answer is still under way: the next beat may be minutes off.
    clearTimeout(again)
    again = setTimeout(look, LOOK_AGAIN_MS).unref()
  }

  return {
    look,
    stop() {
      isStopped = true
      clearTimeout(again)
    },
  }
}
