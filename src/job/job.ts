/** Owns the vocabulary of a job as its producer sees it: a union by state. */
import type { JobId } from './job-id.ts'

export type UnfinishedState = 'waiting' | 'scheduled' | 'ready' | 'running'
export type FinishedState = 'succeeded' | 'failed' | 'cancelled' | 'dependency_failed'
export type JobState = UnfinishedState | FinishedState

/** An error as it is stored with a job: bounded, without credentials in URLs, and never with the payload in it. */
export interface StoredError extends Omit<StoredCause, 'name'> {
  /** Stable; `HANDLER_FAILED` when the handler threw. */
  code: string
  name?: string
  /** The `code` of what the handler threw, such as `ECONNREFUSED` or `23505`. */
  thrownCode?: string
}

/** What is behind a stored error, up to eight deep. What is beyond the bounds says so, under the name `LeftOut`. */
export interface StoredCause {
  name: string
  message: string
  /** Its own, such as `ECONNREFUSED`. */
  code?: string
  stack?: string
  cause?: StoredCause
  /** The first ten of an AggregateError. */
  errors?: StoredCause[]
}

/** What every job has, whatever its state. */
export interface JobFacts {
  id: JobId
  task: string
  queue: string
  tag: string
  /** What a worker must have to run it; empty: nothing. */
  constraints: Record<string, string>
  payload: unknown
  priority: number
  runAt: Date
  createdAt: Date
  /** Attempts used: how often it was started, except for runs that were given back or rescued. The run under way counts. */
  attempts: number
  /** How many attempts it has in all. */
  maxAttempts: number
  /** Why the last attempt failed; null when none has. */
  error: StoredError | null
}

export type Job<Result = unknown> =
  | (JobFacts & { state: 'waiting' | 'scheduled' | 'ready'; isFinished: false; hasWorker: boolean })
  | (JobFacts & { state: 'running'; isFinished: false; startedAt: Date; workerId: number })
  | FinishedJob<Result>

export type FinishedJob<Result = unknown> = JobFacts & {
  isFinished: true
  startedAt: Date | null
  finishedAt: Date
} & (
    | { state: 'succeeded'; result: Result }
    | { state: 'failed'; error: StoredError }
    | { state: 'cancelled' | 'dependency_failed' }
  )

/** What `enqueue` returns. The type parameter carries the result's type to `get` and `waitFor`. */
export interface JobRef<Result = unknown> {
  readonly id: JobId
  readonly task: string
  /** False when a job with this id was there before: then nothing was changed. */
  readonly isNew: boolean
  readonly resultType?: Result
}
