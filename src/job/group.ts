/** Owns the vocabulary of a group as its producer sees it. */
import type { JobState } from './job.ts'

/**
 * `queued`: no job has started yet. `dispatching`: one has. `succeeded`: all of its jobs have. `failed`: a job has failed, or could
 * not run because of one. `cancelled`: it was cancelled, or a job of it was and none has failed.
 */
export type GroupState = 'queued' | 'dispatching' | FinishedGroupState
export type FinishedGroupState = 'succeeded' | 'failed' | 'cancelled'

export interface GroupRef {
  readonly id: string
}

export interface GroupStatus {
  id: string
  name: string | null
  state: GroupState
  /** How many of its jobs are in each state. */
  counts: Record<JobState, number>
  createdAt: Date
  finishedAt: Date | null
  /** What the watchdog knows about it if it does not move although it could; null otherwise. */
  stuck: StuckReport | null
}

export type FinishedGroup = GroupStatus & { state: FinishedGroupState; finishedAt: Date }

export interface StuckReport {
  /** Since when nothing has changed. */
  since: string
  /** Jobs that ought to move, with what is known of each; at most 20. */
  jobs: { id: string; task: string; state: JobState; reason: string }[]
}

/** What has become of a group: it has ended, or the watchdog has found it stuck. */
export interface GroupEvent {
  id: string
  event: FinishedGroupState | 'stuck'
}
