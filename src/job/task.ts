/** Owns what a task is: a name for work, with a payload schema, retries and a time limit. */
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { type Backoff, type BackoffOptions, toBackoff } from './backoff.ts'
import { checkOneOf, checkOptions, checkWhole as checkWholeNumber, readGiven } from './check-options.ts'
import { type Duration, LONGEST_TIMER_MS, toMs } from './duration.ts'
import { type ErrorCode, LongshoreError } from './errors.ts'
import type { FinishedState, StoredError } from './job.ts'
import type { JobId } from './job-id.ts'
import type { JobLog } from './job-log.ts'
import type { Queryable } from './queryable.ts'
import { quoted } from './shown.ts'

export interface TaskOptions<Payload = unknown, Result = unknown, Input = Payload, Returned = Result> {
  /** Unique over the deployment. 1 to 200 characters. */
  name: string
  /** Any Standard Schema (zod, valibot, arktype, …). Checked on enqueue and again before the handler runs. */
  payload?: StandardSchemaV1<Input, Payload>
  /** Any Standard Schema for what the handler returns. Default: anything that is JSON. */
  result?: StandardSchemaV1<Returned, Result>
  /** The unit of isolation that its jobs belong to. Default `'default'`. */
  queue?: string
  /** The tag that a worker must have to run it. Default `'default'`. */
  tag?: string
  retry?: {
    /** How many attempts a job has in all, 1 to 1000. Default 3. */
    maxAttempts?: number
    /** How long to wait between attempts. Default `'exponential'`: from 1 s to 1 h, with jitter. */
    backoff?: BackoffOptions
    /** How often a worker may die with a job before the job is taken for the cause and fails. 0 to 1000, default 10. */
    maxRescues?: number
  }
  /** Jobs of this task that may run at once, over all workers. Default: no limit. */
  concurrency?: number
  /** Jobs of this task with the same `concurrencyKey` that may run at once, over all workers. Default: no limit. */
  concurrencyPerKey?: number
  /** Time limit of one attempt; `ctx.signal` fires when it has passed. Default: none. */
  timeout?: Duration
}

/**
 * A definition that producers and workers share. Make one with `defineTask`. `Payload` is what its handler is given and `Result` what
 * `waitFor` tells. The other two differ from them only where a schema transforms: `Input` is what `enqueue` takes, `Returned` what the
 * handler returns. A task of any types is a `Task`.
 */
export interface Task<Payload = unknown, Result = unknown, Input = Payload, Returned = Result> {
  readonly name: string
  readonly queue: string
  readonly tag: string
  readonly maxAttempts: number
  readonly maxRescues: number
  readonly concurrency: number | undefined
  readonly concurrencyPerKey: number | undefined
  readonly backoff: Backoff
  readonly timeoutMs: number | undefined
  readonly payload: StandardSchemaV1<Input, Payload> | undefined
  readonly result: StandardSchemaV1<Returned, Result> | undefined
  /** Bind the function that does the work; hand the binding to `createWorker`. */
  handle(run: HandlerFunction<Payload, Returned> | ThreadOptions): Handler
}

export interface RunningJob<Payload> {
  readonly id: JobId
  readonly task: string
  readonly payload: Payload
  /** The number of this attempt, from 1; the job's `attempts` while it runs. */
  readonly attempt: number
  readonly maxAttempts: number
  readonly priority: number
  readonly createdAt: Date
}

export interface JobContext {
  /** Fires when the attempt's time is up, the job was cancelled or the worker must stop; the reason says which. */
  readonly signal: AbortSignal
  /**
   * End this job successfully together with writes of your own: `work` is given a client inside a transaction, the job is
   * settled in it, and both commit or neither does. What `work` returns is the job's result; what the handler returns
   * afterwards is not looked at. Rejects, with nothing written, when the lease was lost (`LEASE_LOST`) or the job cancelled
   * (`JOB_CANCELLED`). `work` must not end the transaction itself: that fails the job with `TRANSACTION_ENDED`.
   */
  complete<T>(work: (tx: Queryable) => T | Promise<T>): Promise<T>
  /** The jobs that this one ran after, read from Postgres when they are asked for. */
  readonly parents: Parents
  /** The id of the job's group, for `addToGroup`; null when it belongs to none. */
  groupId(): Promise<string | null>
  /**
   * Say something about this run, for `producer.getLogs`, `followLogs` and `longshore logs`: `ctx.log('sent', { mails: 3 })`, and
   * with other levels `ctx.log.debug`, `ctx.log.warn`, `ctx.log.error`. Stored in the background, within a moment; it never
   * throws and never holds up the job.
   */
  readonly log: JobLog
  /** Say how far this run is, for `producer.getProgress`: only the newest is kept. As little in the way as `log`. */
  readonly progress: (done: number, total?: number) => void
}

/** What a job ran after, in the order in which those were added. */
export interface Parents extends AsyncIterable<ParentJob> {
  /** All of them. */
  all(): Promise<ParentJob[]>
  /** Those of one task, with its type of result. */
  of<Result>(task: Task<unknown, Result, unknown, unknown>): Promise<ParentJob<Result>[]>
}

/** Its state is not `succeeded` only where the edge says `onFailure: 'run'`; then it has no result. */
export type ParentJob<Result = unknown> = {
  readonly id: JobId
  readonly task: string
  /** Why the last attempt failed; null when none has. */
  readonly error: StoredError | null
} & (
  | { readonly state: 'succeeded'; readonly result: Result }
  | { readonly state: Exclude<FinishedState, 'succeeded'>; readonly result: null }
)

export type HandlerFunction<Payload, Returned> = (
  job: RunningJob<Payload>,
  ctx: JobContext,
) => Returned | Promise<Returned>

/** For work that keeps a processor busy: its handler runs in a thread, and only its own job suffers when that crashes or hangs. */
export interface ThreadOptions {
  isolate: 'thread'
  /**
   * The module whose default export is the handler, as a file URL: `new URL('./resize.js', import.meta.url)`. What it is given and
   * returns is copied, so it must be plain data.
   */
  module: URL | string
}

/** The default export of such a module: `export default (async (job, ctx) => { … }) satisfies ThreadHandler<typeof resize>`. */
export type ThreadHandler<T> =
  T extends Task<infer Payload, unknown, unknown, infer Returned>
    ? (job: RunningJob<Payload>, ctx: ThreadContext) => Returned | Promise<Returned>
    : never

/** `complete` is missing: its transaction is on a connection that no other thread can use. */
export type ThreadContext = Omit<JobContext, 'complete'>

/** A task together with what does its work: a function, or a module to be run in a thread. */
export type Handler = { readonly task: Task } & (
  | { readonly run: HandlerFunction<unknown, unknown>; readonly module?: undefined }
  | { readonly run?: undefined; readonly module: string }
)

/** Those that were made here. */
const known = new WeakSet<Task>()

const NAME_LENGTH = 200
const LABEL_LENGTH = 100
const MOST_CONCURRENT = 1_000_000
const KNOWN = [
  'name',
  'payload',
  'result',
  'queue',
  'tag',
  'retry',
  'concurrency',
  'concurrencyPerKey',
  'timeout',
]

/**
 * Types come from the schemas. Without schemas say them: `defineTask<Payload>({ … })`, or `defineTask<Payload, Result>({ … })` where the
 * result matters too.
 */
export function defineTask<Payload = unknown, Result = unknown, Input = Payload, Returned = Result>(
  options: TaskOptions<Payload, Result, Input, Returned>,
): Task<Payload, Result, Input, Returned> {
  return readGiven('TASK_INVALID', 'defineTask', () => makeTask(options))
}

function makeTask<Payload, Result, Input, Returned>(
  options: TaskOptions<Payload, Result, Input, Returned>,
): Task<Payload, Result, Input, Returned> {
  const name = checkLabel('name', options?.name, NAME_LENGTH)
  checkOptions('TASK_INVALID', `task ${name}`, options, KNOWN)
  checkOptions('TASK_INVALID', `task ${name}: retry`, options.retry ?? {}, [
    'maxAttempts',
    'backoff',
    'maxRescues',
  ])
  const checkWhole = (what: string, value: number, least: number, most: number): number =>
    checkWholeNumber('TASK_INVALID', `task ${name}: ${what}`, value, least, most)
  const checkLimit = (what: 'concurrency' | 'concurrencyPerKey'): number | undefined =>
    options[what] === undefined ? undefined : checkWhole(what, options[what], 1, MOST_CONCURRENT)
  const task: Task<Payload, Result, Input, Returned> = {
    name,
    queue: checkLabel('queue', options.queue ?? 'default', LABEL_LENGTH),
    tag: checkLabel('tag', options.tag ?? 'default', LABEL_LENGTH),
    maxAttempts: checkWhole('retry.maxAttempts', options.retry?.maxAttempts ?? 3, 1, 1000),
    maxRescues: checkWhole('retry.maxRescues', options.retry?.maxRescues ?? 10, 0, 1000),
    concurrency: checkLimit('concurrency'),
    concurrencyPerKey: checkLimit('concurrencyPerKey'),
    backoff: toBackoff(options.retry?.backoff ?? 'exponential'),
    timeoutMs: options.timeout === undefined ? undefined : checkTimeout(name, options.timeout),
    payload: checkSchema(name, 'payload', options.payload),
    result: checkSchema(name, 'result', options.result),
    handle(run) {
      if (typeof run === 'function') return { task, run: run as HandlerFunction<unknown, unknown> }
      if (typeof run !== 'object' || run === null) {
        throw new LongshoreError(
          'TASK_INVALID',
          `task ${name}: handle takes the function that does the work, or { isolate: 'thread', module }`,
        )
      }
      return { task, module: checkModule(name, run) }
    },
  }
  Object.freeze(task)
  known.add(task)
  return task
}

function checkTimeout(name: string, timeout: Duration): number {
  const ms = toMs(timeout, `task ${name}: timeout`, 'TASK_INVALID')
  if (ms >= 1 && ms <= LONGEST_TIMER_MS) return ms
  throw new LongshoreError(
    'TASK_INVALID',
    `task ${name}: timeout must be between 1 ms and ${LONGEST_TIMER_MS} ms (24 days); leave it out for none`,
  )
}

function checkModule(name: string, options: ThreadOptions): string {
  checkOptions('TASK_INVALID', `task ${name}: handle`, options, ['isolate', 'module'])
  checkOneOf('TASK_INVALID', `task ${name}: isolate`, options.isolate, ['thread'])
  const module = options.module instanceof URL ? options.module.href : options.module
  if (typeof module === 'string' && URL.canParse(module) && new URL(module).protocol === 'file:')
    return module
  throw new LongshoreError(
    'TASK_INVALID',
    `task ${name}: module must be a file URL, such as new URL('./${name}.js', import.meta.url); got ${quoted(module)}`,
  )
}

/** Refuses what `defineTask` has not made, nor could have: a copy with another queue is welcome. */
export function checkTask(task: unknown, what = 'the first argument'): asserts task is Task {
  if (known.has(task as Task)) return
  const { handle, queue, tag, maxAttempts, maxRescues, concurrency, concurrencyPerKey } = (task ?? {}) as Task
  if (typeof handle !== 'function')
    throw new LongshoreError('TASK_INVALID', `${what} must be a task made by defineTask({ … })`)
  const { name } = task as Task
  const retry = { maxAttempts, maxRescues }
  const limits = {
    ...(concurrency === undefined ? {} : { concurrency }),
    ...(concurrencyPerKey === undefined ? {} : { concurrencyPerKey }),
  }
  makeTask({ name, queue: queue ?? '', tag: tag ?? '', retry, ...limits })
}

/** A name that goes into Postgres, Redis keys, logs and metrics: bounded, and free of control characters. */
export function checkLabel(
  what: string,
  value: unknown,
  longest = LABEL_LENGTH,
  code: ErrorCode = 'TASK_INVALID',
): string {
  if (
    typeof value === 'string' &&
    value.length >= 1 &&
    value.length <= longest &&
    !/\p{Cc}/u.test(value) &&
    value.isWellFormed()
  ) {
    return value
  }
  throw new LongshoreError(
    code,
    `${what} must be a text of 1 to ${longest} characters without control characters; got ${quoted(value)}`,
  )
}

function checkSchema<S extends StandardSchemaV1>(
  name: string,
  what: string,
  schema: S | undefined,
): S | undefined {
  if (schema === undefined || typeof schema?.['~standard']?.validate === 'function') return schema
  throw new LongshoreError(
    'TASK_INVALID',
    `task ${name}: ${what} must be a Standard Schema, such as a zod object; got ${typeof schema}`,
  )
}
