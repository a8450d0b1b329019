/** Owns the verbs of a producer and their options. `create-producer.ts` makes one. */
import type { ChangeOptions, JobOptions } from '../job/enqueue-options.ts'
import type { Explanation } from '../job/explanation.ts'
import type { FinishedGroup, GroupEvent, GroupRef, GroupStatus } from '../job/group.ts'
import type { FinishedJob, Job, JobRef } from '../job/job.ts'
import type { LogLine, Progress } from '../job/job-log.ts'
import type { Task } from '../job/task.ts'
import type { CancelAnswer } from '../postgres/cancel-jobs.ts'
import type { ChangeAnswer } from '../postgres/change-job.ts'
import type { CancelGroupAnswer, ResumeWorkflowAnswer } from '../postgres/groups.ts'
import type { FollowOptions, LogPageOptions } from './follow-logs.ts'
import type { GroupBuilder } from './group-builder.ts'
import type { EnqueueManyOptions } from './many-jobs.ts'
import type { InTransaction } from './transaction.ts'
import type { WaitOptions } from './waiter.ts'

export interface GroupOptions {
  /** What people call it. */
  name?: string
  /** A UUID of your own: submitting it again changes nothing, also when the group has ended meanwhile. */
  id?: string
}

export interface EnqueueOptions extends JobOptions, InTransaction {
  /** A UUID of your own: enqueueing it again changes nothing, also when the job has run meanwhile. */
  id?: string
}

export interface Producer {
  /** Resolves when the job is durable, or, with `tx`, when it is part of that transaction. */
  enqueue<Input, Result>(
    task: Task<unknown, Result, Input, unknown>,
    payload: NoInfer<Input>,
    options?: EnqueueOptions,
  ): Promise<JobRef<Result>>
  /** All of them or none. The options hold for each of them; `each` gives one its own. */
  enqueueMany<Input, Result>(
    task: Task<unknown, Result, Input, unknown>,
    payloads: readonly NoInfer<Input>[],
    options?: EnqueueManyOptions<NoInfer<Input>>,
  ): Promise<JobRef<Result>[]>
  /** The job as it is now, or undefined when there is none (or its history has been dropped). */
  get<Result>(job: JobRef<Result> | string): Promise<Job<Result> | undefined>
  /** Why the job is not running, where it runs, or how it ended; undefined as from `get`. */
  explain(job: JobRef | string): Promise<Explanation | undefined>
  /** Resolves when the job has ended, whichever way. Rejects with `WAIT_TIMEOUT` when that takes too long. */
  waitFor<Result>(job: JobRef<Result> | string, options?: WaitOptions): Promise<FinishedJob<Result>>
  /** What the handler has logged so far, over all its runs, in their order; a page of it. While the job runs as well. */
  getLogs(job: JobRef | string, options?: LogPageOptions): Promise<LogLine[]>
  /**
   * The lines of a job as they come, from the first on. Ends when the job has ended and, a second later, nothing more has come. Throws
   * `JOB_NOT_FOUND` when there is no such job.
   */
  followLogs(job: JobRef | string, options?: FollowOptions): AsyncIterable<LogLine>
  /** How far the job is, as its handler said last; undefined when it has not. */
  getProgress(job: JobRef | string): Promise<Progress | undefined>
  /**
   * Cancel a job: what has not started never starts; what runs, in whichever process, gets its signal within about a second
   * and ends as cancelled. Cancelling again changes nothing.
   */
  cancel(job: JobRef | string, options?: InTransaction): Promise<CancelAnswer>
  /** Change a job that has not started. */
  change(job: JobRef | string, change: ChangeOptions & InTransaction): Promise<ChangeAnswer>
  /** A new group: add jobs to it, say what they run after, and submit it. */
  group(options?: GroupOptions): GroupBuilder
  /** More jobs for a group that has not ended. They may run after jobs of it that wait, run or have ended. */
  addToGroup(group: GroupRef | string): GroupBuilder
  /** The group as it is now, with how many of its jobs are in each state; undefined when there is none. */
  getGroup(group: GroupRef | string): Promise<GroupStatus | undefined>
  /** Resolves when the group has ended, whichever way. Rejects with `WAIT_TIMEOUT` when that takes too long. */
  waitForGroup(group: GroupRef | string, options?: WaitOptions): Promise<FinishedGroup>
  /** Cancel what is left of a group. Cancelling again changes nothing. */
  cancelGroup(group: GroupRef | string, options?: InTransaction): Promise<CancelGroupAnswer>
  /**
   * Be told when groups end or are found stuck. A hint: what happens while the connection is broken is not told again, so
   * to be sure, call `waitForGroup`. Call what is returned to hear no more.
   */
  watchGroups(onEvent: (event: GroupEvent) => void): Promise<() => void>
  /** Let a workflow that a failure has halted go on with its next job. */
  resumeWorkflow(key: string, options?: InTransaction): Promise<ResumeWorkflowAnswer>
  /** Waits for what is under way, then closes the connections. */
  close(): Promise<void>
}
