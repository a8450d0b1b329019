/**
 * Owns one run: payload checked again, handler called, time limit kept, and whatever happens turned into an outcome.
 * A run has two ends: its outcome is reported once, and its permit is free when the handler itself has returned.
 * They differ only for a handler that ignores its signal. A class, because a worker makes tens of thousands a second.
 */
import { LongshoreError } from '../job/errors.ts'
import { encodeJson, parsePayload } from '../job/json.ts'
import type { Queryable } from '../job/queryable.ts'
import type { Handler, RunningJob } from '../job/task.ts'
import { type Validated, validate } from '../job/validate.ts'
import type { Completion } from '../postgres/complete-job.ts'
import type { ClaimedJob, ClaimedTrace, Outcome } from '../postgres/settle-and-claim.ts'
import { type RunSpan, traceRun } from '../runtime/tracing.ts'
import { Context, type ContextReads, HandedOverJob } from './job-context.ts'
import type { RunLogs } from './job-logs.ts'
import type { Ending, Meter } from './meter.ts'
import type { RunLog } from './run-log.ts'
import { failureOf, type OutcomeSettings, outcomeOf, releaseOf, successOf } from './run-outcome.ts'
import type { StuckHandlers } from './stuck-handlers.ts'

export interface RunSettings extends ContextReads, OutcomeSettings {
  workerId: number
  /** How long a handler may take to return after its signal fired. */
  abortGraceMs: number
  meter: Meter
  /** Called once, unless the run was completed in a transaction. */
  onOutcome: (outcome: Outcome) => void
  /** Settle the run in one transaction with what `work` writes. */
  complete: (claimed: ClaimedJob, work: (tx: Queryable) => Promise<string | null>) => Promise<Completion>
  /** The run was completed in a transaction: there will be no outcome. */
  onCompleted: (claimed: ClaimedJob) => void
  /** Run the handler of a task that is isolated in threads. */
  runInThread: (run: Run, job: RunningJob<unknown>) => Promise<unknown>
  logs: RunLogs
  stuck: StuckHandlers
  /** Called once, when the handler has returned: never before `onOutcome`. */
  onReturn: (run: Run) => void
}

export class Run {
  #controller: AbortController | undefined
  #abortedWith: LongshoreError | undefined
  #startedAt: number | undefined
  #isReported = false
  #completing: Promise<unknown> | undefined
  #isCompleted = false
  #hasReturned = false
  #timer: NodeJS.Timeout | undefined
  #grace: NodeJS.Timeout | undefined
  #log: RunLog | undefined
  #span: RunSpan | undefined

  constructor(
    readonly claimed: ClaimedJob,
    readonly handler: Handler,
    readonly settings: RunSettings,
  ) {}

  start(): void {
    if (this.#isReported) return // given back before it began
    this.#startedAt = performance.now()
    if (this.settings.logger.isLevelEnabled('debug')) this.#tell('a run starts')
    if (this.claimed.trace) this.#startSpan(this.claimed.trace)
    const { timeoutMs } = this.handler.task
    if (timeoutMs !== undefined) {
      this.#timer = setTimeout(() => {
        const message = `attempt ${this.claimed.attempt} took longer than ${timeoutMs} ms`
        this.abort(new LongshoreError('TIMEOUT', message))
      }, timeoutMs)
    }
    try {
      const validated = validate(this.handler.task.payload, parsePayload(this.claimed.payload))
      if (validated instanceof Promise) validated.then(this.#runHandler).then(this.#onValue, this.#onError)
      else {
        const value = this.#runHandler(validated)
        if (value instanceof Promise) value.then(this.#onValue, this.#onError)
        else Promise.resolve(value).then(this.#onValue, this.#onError) // a thenable, or a plain value
      }
    } catch (error) {
      this.#onError(error)
    }
  }

  get hasStarted(): boolean {
    return this.#startedAt !== undefined
  }

  /** Its outcome has been reported; the handler may still be inside. */
  get isOver(): boolean {
    return this.#isReported
  }

  /** Give the job back without having started it; not before the delay is it claimed again. */
  giveUp(delayMs = 0): void {
    if (this.#isReported) return
    this.#finish(releaseOf(this, delayMs))
  }

  /** Fire the handler's signal; after the grace the run ends with or without it. */
  abort(reason: LongshoreError): void {
    if (this.#abortedWith || this.#isReported) return
    if (this.#startedAt === undefined) {
      this.giveUp()
      return
    }
    this.#abortedWith = reason
    this.#controller?.abort(reason)
    this.#grace = setTimeout(() => {
      this.settings.logger.warn(
        { job: this.claimed.id, task: this.handler.task.name, code: reason.code },
        this.handler.module
          ? 'a handler did not return when its signal fired; its thread is ended'
          : 'a handler did not return when its signal fired; its permit stays taken until it does',
      )
      // Before the report: what follows from it must know.
      if (!this.handler.module) this.settings.stuck.add(this)
      this.#report(failureOf(this, reason))
    }, this.settings.abortGraceMs)
  }

  /** Made on demand: most handlers never look at it, and an AbortController costs more than a no-op job. */
  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController()
      if (this.#abortedWith) this.#controller.abort(this.#abortedWith)
    }
    return this.#controller.signal
  }

  /** Made on demand as well. */
  get log(): RunLog {
    const hasEnded = this.#hasReturned || (this.#isReported && !this.#isCompleted)
    this.#log ??= this.settings.logs.open(this.claimed, hasEnded)
    return this.#log
  }

  #runHandler = (validated: Validated): unknown => {
    if (!validated.ok) {
      throw new LongshoreError(
        'PAYLOAD_INVALID',
        `the stored payload does not fit the task: ${validated.problem}`,
      )
    }
    const job = new HandedOverJob(this.claimed, this.handler.task.name, validated.value)
    return this.#span ? this.#span.call(() => this.#callHandler(job)) : this.#callHandler(job)
  }

  #callHandler(job: RunningJob<unknown>): unknown {
    const { run } = this.handler
    return run ? run(job, new Context(this)) : this.settings.runInThread(this, job)
  }

  #startSpan(trace: ClaimedTrace): void {
    this.#span = traceRun({
      jobId: this.claimed.id,
      task: this.handler.task.name,
      attempt: this.claimed.attempt,
      workerId: this.settings.workerId,
      ...trace,
    })
  }

  /** See `JobContext.complete`. */
  complete<T>(work: (tx: Queryable) => T | Promise<T>): Promise<T> {
    if (this.#completing) {
      return Promise.reject(
        new LongshoreError(
          'COMPLETED_TWICE',
          `job ${this.claimed.id} is completed already: complete it once`,
        ),
      )
    }
    const completing = this.#complete(work).catch(error => {
      this.#completing = undefined // it may be tried again
      throw error
    })
    this.#completing = completing
    return completing
  }

  async #complete<T>(work: (tx: Queryable) => T | Promise<T>): Promise<T> {
    const { task } = this.handler
    let value: T | undefined
    const completion = await this.settings.complete(this.claimed, async tx => {
      value = await work(tx)
      const validated = await validate(task.result, value)
      if (!validated.ok) {
        throw refusedResult(`does not fit the task's result schema: ${validated.problem}`)
      }
      if (validated.value === undefined) return null
      const encoded = encodeJson(validated.value, this.settings.maxResultBytes)
      if (!encoded.ok) throw refusedResult(`cannot be stored: ${encoded.problem}`)
      return encoded.text
    })
    switch (completion) {
      case 'completed':
        this.#isCompleted = true
        if (!this.#isReported) {
          this.#isReported = true
          this.#count('succeeded')
          this.#span?.end('succeeded')
          this.settings.onCompleted(this.claimed)
          this.#log?.flush()
        }
        return value as T
      case 'cancelled':
        throw new LongshoreError('JOB_CANCELLED', `job ${this.claimed.id} was cancelled: nothing was written`)
      case 'lost':
        throw new LongshoreError(
          'LEASE_LOST',
          `the lease of job ${this.claimed.id} is gone: nothing was written, and another worker may run it`,
        )
      case 'ended':
        throw new LongshoreError(
          'TRANSACTION_ENDED',
          'the work of complete ended its transaction itself: leave commit and rollback to complete, throw to roll back, and use savepoints for what is nested',
        )
    }
  }

  #onValue = (value: unknown): void => {
    if (this.#completing) {
      this.#completing.then(() => this.#end(), this.#onError)
      return
    }
    // Most jobs return nothing: no promise more for them.
    if (value === undefined && !this.handler.task.result) this.#finish(successOf(this, null))
    else outcomeOf(this, value).then(outcome => this.#finish(outcome), this.#onError)
  }

  #onError = (error: unknown): void => {
    if (this.#completing && !this.#isCompleted) {
      // Whether the job is complete is known when the transaction has ended; the handler did not wait for that.
      const failed = () => this.#onError(error)
      this.#completing.then(failed, failed)
      return
    }
    if (this.#isCompleted) {
      this.settings.logger.warn(
        { err: error, job: this.claimed.id, task: this.handler.task.name },
        'a handler failed after it had completed its job; the job stays completed',
      )
      this.#end()
      return
    }
    this.#finish(failureOf(this, this.#abortedWith ?? error))
  }

  #finish(outcome: Outcome): void {
    this.#report(outcome)
    this.#end()
  }

  #end(): void {
    this.#hasReturned = true
    if (this.#timer) clearTimeout(this.#timer)
    if (this.#grace) {
      clearTimeout(this.#grace)
      this.settings.stuck.delete(this)
    }
    this.#log?.end() // a completed run may go on and say more
    this.settings.onReturn(this)
  }

  #report(outcome: Outcome): void {
    if (this.#isReported) return
    this.#isReported = true
    this.#log?.end()
    const ending = outcome.kind === 'retry' ? 'retried' : outcome.kind
    this.#count(ending)
    this.#span?.end(ending, 'error' in outcome ? outcome.error : undefined)
    this.settings.onOutcome(outcome)
  }

  #count(how: Ending): void {
    const now = performance.now()
    this.settings.meter.ended(this.handler.task.name, how, this.#startedAt ?? now, now)
    if (this.settings.logger.isLevelEnabled('debug'))
      this.#tell('a run has ended', { outcome: how, ms: Math.round(now - (this.#startedAt ?? now)) })
  }

  /** Never what the job carries. Callers check the level first: a line for each run costs more than a no-op job. */
  #tell(what: string, how: object = {}): void {
    const { id: job, attempt } = this.claimed
    this.settings.logger.debug({ job, task: this.handler.task.name, attempt, ...how }, what)
  }
}

const refusedResult = (problem: string) =>
  new LongshoreError('RESULT_REFUSED', `the result of complete ${problem}`)
