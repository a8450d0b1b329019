/**
 * Owns one run: payload checked again, handler called, time limit kept, and whatever happens turned into an outcome.
 * A run has two ends: its outcome is reported once, and its permit is free when the handler itself has returned.
 * They differ only for a handler that ignores its signal.
 */
import { toBackoff } from '../job/backoff.ts'
import { LongshoreError, NonRetryableError } from '../job/errors.ts'
import { encodeJson } from '../job/json.ts'
import { toStoredError } from '../job/stored-error.ts'
import type { Handler, JobContext, RunningJob, Task } from '../job/task.ts'
import { validate } from '../job/validate.ts'
import type { ClaimedJob, Outcome } from '../postgres/settle-and-claim.ts'
import type { Logger } from '../runtime/logger.ts'

export interface Run {
  /** Fire the handler's signal; after the grace the run ends with or without it. */
  abort(reason: LongshoreError): void
}

export interface RunSettings {
  /** How long a handler may take to return after its signal fired. */
  abortGraceMs: number
  maxResultBytes: number
  logger: Logger
  /** Called once. */
  onOutcome: (outcome: Outcome) => void
  /** Called once, when the handler has returned: never before `onOutcome`. */
  onReturn: () => void
}

export function runJob(claimed: ClaimedJob, handler: Handler, settings: RunSettings): Run {
  const { task } = handler
  let controller: AbortController | undefined
  let abortedWith: LongshoreError | undefined
  let isReported = false
  let timer: NodeJS.Timeout | undefined
  let grace: NodeJS.Timeout | undefined

  const report = (outcome: Outcome) => {
    if (isReported) return
    isReported = true
    settings.onOutcome(outcome)
  }

  const abort = (reason: LongshoreError) => {
    if (abortedWith || isReported) return
    abortedWith = reason
    controller?.abort(reason)
    grace = setTimeout(() => {
      settings.logger.warn(
        { job: claimed.id, task: task.name, code: reason.code },
        'a handler did not return when its signal fired; its permit stays taken until it does',
      )
      report(failure(claimed, task, reason, settings.logger))
    }, settings.abortGraceMs)
  }

  const context: JobContext = {
    // Made on demand: most handlers never look at it, and an AbortController costs more than a no-op job.
    get signal() {
      if (!controller) {
        controller = new AbortController()
        if (abortedWith) controller.abort(abortedWith)
      }
      return controller.signal
    },
  }

  const finish = (outcome: Outcome) => {
    clearTimeout(timer)
    clearTimeout(grace)
    report(outcome)
    settings.onReturn()
  }

  if (task.timeoutMs !== undefined) {
    const ms = task.timeoutMs
    timer = setTimeout(
      () => abort(new LongshoreError('TIMEOUT', `attempt ${claimed.attempt} took longer than ${ms} ms`)),
      ms,
    )
  }
  execute(claimed, handler, context).then(
    value => {
      // Most jobs return nothing: no promise more for them.
      if (value === undefined && !task.result)
        finish({ ...leaseOf(claimed), kind: 'succeeded', result: null })
      else toSuccess(claimed, task, value, settings.maxResultBytes).then(finish)
    },
    error => finish(failure(claimed, task, abortedWith ?? error, settings.logger)),
  )
  return { abort }
}

async function execute(claimed: ClaimedJob, handler: Handler, context: JobContext): Promise<unknown> {
  const validating = validate(handler.task.payload, JSON.parse(claimed.payload))
  const validated = validating instanceof Promise ? await validating : validating
  if (!validated.ok) {
    throw new LongshoreError(
      'PAYLOAD_INVALID',
      `the stored payload does not fit the task: ${validated.problem}`,
    )
  }
  const job: RunningJob<unknown> = {
    id: claimed.id,
    task: handler.task.name,
    payload: validated.value,
    attempt: claimed.attempt,
    maxAttempts: claimed.maxAttempts,
    priority: 2047 - Math.floor(claimed.score / 2 ** 42),
    createdAt: new Date(Number(claimed.createdAt)),
  }
  return handler.run(job, context)
}

const leaseOf = ({ id, leaseToken }: ClaimedJob) => ({ id, leaseToken })

async function toSuccess(
  claimed: ClaimedJob,
  task: Task,
  value: unknown,
  maxBytes: number,
): Promise<Outcome> {
  const refuse = (problem: string): Outcome => ({
    ...leaseOf(claimed),
    kind: 'failed',
    error: { code: 'RESULT_REFUSED', message: `the handler succeeded, but its result ${problem}` },
  })
  try {
    const validated = await validate(task.result, value)
    if (!validated.ok) return refuse(`does not fit the task's result schema: ${validated.problem}`)
    if (validated.value === undefined) return { ...leaseOf(claimed), kind: 'succeeded', result: null }
    const encoded = encodeJson(validated.value, maxBytes)
    return encoded.ok
      ? { ...leaseOf(claimed), kind: 'succeeded', result: encoded.text }
      : refuse(`cannot be stored: ${encoded.problem}`)
  } catch (error) {
    return refuse(`could not be checked: ${error instanceof Error ? error.message : String(error)}`)
  }
}

/** A stop gives the attempt back; what cannot get better fails at once; the rest is tried again while it may. */
function failure(claimed: ClaimedJob, task: Task, thrown: unknown, logger: Logger): Outcome {
  if (thrown instanceof LongshoreError && thrown.code === 'WORKER_STOPPED') {
    return { ...leaseOf(claimed), kind: 'released' }
  }
  const error = toStoredError(thrown)
  const isFinal =
    claimed.attempt >= claimed.maxAttempts ||
    thrown instanceof NonRetryableError ||
    error.code === 'PAYLOAD_INVALID'
  if (isFinal) return { ...leaseOf(claimed), kind: 'failed', error }
  return { ...leaseOf(claimed), kind: 'retry', error, delayMs: backoffMs(claimed, task, thrown, logger) }
}

const fallbackBackoff = toBackoff('exponential')

function backoffMs(claimed: ClaimedJob, task: Task, thrown: unknown, logger: Logger): number {
  try {
    return task.backoff(claimed.attempt, thrown)
  } catch (error) {
    logger.error(
      { err: error, task: task.name },
      'the backoff of this task failed; waiting exponentially instead',
    )
    return fallbackBackoff(claimed.attempt, thrown)
  }
}
