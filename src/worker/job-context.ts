/** Owns what a handler is given: its job, and the context in which it runs. Most of it is made when the handler asks for it. */
import type { JobId } from '../job/job-id.ts'
import type { JobLog } from '../job/job-log.ts'
import type { Queryable } from '../job/queryable.ts'
import type { JobContext, ParentJob, Parents, RunningJob, Task } from '../job/task.ts'
import type { ClaimedJob } from '../postgres/settle-and-claim.ts'
import type { RunLog } from './run-log.ts'

/** What a context needs of its run. */
interface ContextRun {
  readonly claimed: ClaimedJob
  readonly signal: AbortSignal
  readonly log: RunLog
  readonly settings: ContextReads
  complete<T>(work: (tx: Queryable) => T | Promise<T>): Promise<T>
}

export interface ContextReads {
  /** A page of the jobs that this one ran after, of one task if one is named. */
  readParents: (claimed: ClaimedJob, task: string | null, after: string) => Promise<ParentJob[]>
  readGroup: (claimed: ClaimedJob) => Promise<string | null>
}

export class Context implements JobContext {
  readonly #run: ContextRun
  constructor(run: ContextRun) {
    this.#run = run
  }
  get signal(): AbortSignal {
    return this.#run.signal
  }
  complete<T>(work: (tx: Queryable) => T | Promise<T>): Promise<T> {
    return this.#run.complete(work)
  }
  get parents(): Parents {
    return new JobParents(this.#run)
  }
  groupId(): Promise<string | null> {
    return this.#run.settings.readGroup(this.#run.claimed)
  }
  get log(): JobLog {
    return this.#run.log.log
  }
  get progress(): JobContext['progress'] {
    return this.#run.log.progress
  }
}

const BEFORE_ALL = '00000000-0000-0000-0000-000000000000'

/** Read in pages: a job may run after thousands. */
class JobParents implements Parents {
  readonly #run: ContextRun
  constructor(run: ContextRun) {
    this.#run = run
  }
  [Symbol.asyncIterator](): AsyncIterator<ParentJob> {
    return this.#read(null)
  }
  async all(): Promise<ParentJob[]> {
    return listOf(this.#read(null))
  }
  async of<Result>(task: Task<unknown, Result, unknown, unknown>): Promise<ParentJob<Result>[]> {
    return listOf(this.#read(task.name)) as Promise<ParentJob<Result>[]>
  }
  async *#read(task: string | null): AsyncGenerator<ParentJob> {
    let after: string | undefined = BEFORE_ALL
    while (after !== undefined) {
      const page: ParentJob[] = await this.#run.settings.readParents(this.#run.claimed, task, after)
      yield* page
      after = page.at(-1)?.id
    }
  }
}

async function listOf<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = []
  for await (const item of items) list.push(item)
  return list
}

/** What few handlers look at is worked out when they do. */
export class HandedOverJob implements RunningJob<unknown> {
  readonly #claimed: ClaimedJob
  readonly id: JobId
  readonly task: string
  readonly payload: unknown
  readonly attempt: number
  readonly maxAttempts: number

  constructor(claimed: ClaimedJob, task: string, payload: unknown) {
    this.#claimed = claimed
    this.id = claimed.id
    this.task = task
    this.payload = payload
    this.attempt = claimed.attempt
    this.maxAttempts = claimed.maxAttempts
  }
  get priority(): number {
    return 2047 - Math.floor(this.#claimed.score / 2 ** 42)
  }
  get createdAt(): Date {
    // Postgres writes `2026-01-31 12:34:56.789012+00`, which is ISO 8601 but for two details.
    return new Date(`${this.#claimed.createdAt.replace(' ', 'T')}:00`)
  }
}
