/** Owns what the end of a run means for its job: success, another attempt, failure, or given back. */
import { toBackoff } from '../job/backoff.ts'
import { type ErrorCode, LongshoreError, NonRetryableError } from '../job/errors.ts'
import type { StoredError } from '../job/job.ts'
import { encodeJson } from '../job/json.ts'
import { isA, messageOf, storedError, toStoredError } from '../job/stored-error.ts'
import type { Handler, Task } from '../job/task.ts'
import { validate } from '../job/validate.ts'
import type { ClaimedJob, Outcome } from '../postgres/settle-and-claim.ts'
import type { Logger } from '../runtime/logger.ts'

export interface OutcomeSettings {
  maxResultBytes: number
  logger: Logger
}

interface Ended {
  readonly claimed: ClaimedJob
  readonly handler: Handler
  readonly settings: OutcomeSettings
}

export const successOf = ({ claimed: { id, leaseToken } }: Ended, result: string | null): Outcome => ({
  id,
  leaseToken,
  kind: 'succeeded',
  result,
})

/** Given back: no attempt is used. */
export const releaseOf = ({ claimed: { id, leaseToken } }: Ended, delayMs = 0): Outcome => ({
  id,
  leaseToken,
  kind: 'released',
  ...(delayMs > 0 ? { delayMs } : {}),
})

const finalFailure = ({ claimed: { id, leaseToken } }: Ended, error: StoredError): Outcome => ({
  id,
  leaseToken,
  kind: 'failed',
  error,
})

/** The handler has returned this value. */
export async function outcomeOf(run: Ended, value: unknown): Promise<Outcome> {
  const { claimed, handler, settings } = run
  const refuse = (problem: string, err?: unknown) => {
    const message = `the handler succeeded, but its result ${problem}`
    settings.logger.warn({ job: claimed.id, task: handler.task.name, reason: message, err }, 'a job failed')
    return finalFailure(run, storedError('RESULT_REFUSED', message))
  }
  try {
    const validated = await validate(handler.task.result, value)
    if (!validated.ok) return refuse(`does not fit the task's result schema: ${validated.problem}`)
    if (validated.value === undefined) return successOf(run, null)
    const encoded = encodeJson(validated.value, settings.maxResultBytes)
    return encoded.ok ? successOf(run, encoded.text) : refuse(`cannot be stored: ${encoded.problem}`)
  } catch (error) {
    return refuse(`could not be checked: ${messageOf(error)}`, error)
  }
}

const GIVEN_BACK = new Set<ErrorCode>(['WORKER_STOPPED', 'JOB_CANCELLED', 'LEASE_LOST'])

/** After the last the writes may be there already: another attempt would make them again. */
const NEVER_BETTER = new Set<string>(['PAYLOAD_INVALID', 'RESULT_REFUSED', 'TRANSACTION_ENDED'])

/**
 * A stop gives the attempt back, and so does a cancel, of which Postgres knows; a lost lease has nothing to say. What cannot
 * get better fails at once; the rest is tried again while it may.
 */
export function failureOf(run: Ended, thrown: unknown): Outcome {
  const { claimed, handler, settings } = run
  if (isA(thrown, LongshoreError) && GIVEN_BACK.has(thrown.code)) return releaseOf(run)
  const error = toStoredError(thrown)
  const isFinal =
    claimed.attempt >= claimed.maxAttempts || isA(thrown, NonRetryableError) || NEVER_BETTER.has(error.code)
  const { logger } = settings
  const told = {
    job: claimed.id,
    task: handler.task.name,
    attempt: claimed.attempt,
    code: error.code,
    reason: error.message,
    err: thrown,
  }
  if (isFinal) {
    logger.warn(told, 'a job failed')
    return finalFailure(run, error)
  }
  const delayMs = backoffMs(handler.task, claimed.attempt, thrown, logger)
  logger.info({ ...told, delayMs }, 'an attempt failed; the job is tried again')
  return { id: claimed.id, leaseToken: claimed.leaseToken, kind: 'retry', error, delayMs }
}

const fallbackBackoff = toBackoff('exponential')

function backoffMs(task: Task, attempt: number, thrown: unknown, logger: Logger): number {
  try {
    return task.backoff(attempt, thrown)
  } catch (error) {
    logger.error(
      { err: error, task: task.name },
      'the backoff of this task failed; waiting exponentially instead',
    )
    return fallbackBackoff(attempt, thrown)
  }
}
