/** Owns the vocabulary of an explanation: why a job is not running, where it runs, or how it ended. */
import type { JobState } from './job.ts'
import type { JobId } from './job-id.ts'

export interface Explanation {
  id: JobId
  task: string
  state: JobState
  /** All of it in one line. */
  summary: string
  /** What keeps it from running, the first to be seen to first; or where it runs; or how it ended. */
  reasons: Reason[]
}

/** Each with a sentence for people. Of what may be many at most 20 are named, beside their count. */
export type Reason = { sentence: string } & (
  | { kind: 'dependencies'; count: number; jobs: NamedJob[] }
  /** Another job has the turn of its workflow. `ahead`: how many more come before it, counted up to 1,000. */
  | { kind: 'turn'; workflow: string; holder: NamedJob | null; ahead: number }
  | { kind: 'halted'; workflow: string; haltedBy: JobId | null }
  /** It waits, and nothing that it waits for is open. */
  | { kind: 'miscounted'; pending: number }
  | { kind: 'due'; at: Date; error: string | null }
  | { kind: 'no_worker'; lacking: Lacking; closest: NamedWorker | null }
  /** Workers could run it, and all of them are drained. */
  | { kind: 'drained'; workers: NamedWorker[] }
  /** It must run alone, because workers died with it, and each worker that may run it has handlers that ignored their signal and have not returned. */
  | { kind: 'alone'; rescues: number; workers: NamedWorker[] }
  /** `key`: the concurrency key whose limit it is; null: the task's own. */
  | { kind: 'limit'; key: string | null; capacity: number; used: number; holders: SlotHolder[] }
  /** Redis does not know of it yet. */
  | { kind: 'not_placed'; since: Date }
  /** Nothing keeps it. `ahead`: ready jobs of its lane that come before it, counted up to 1,000. */
  | { kind: 'ready'; count: number; workers: NamedWorker[]; ahead: number }
  | { kind: 'cancelling' }
  /** Claimed, and waiting until no other handler of its worker is inside. `others`: how many were at the last beat. */
  | { kind: 'waits_alone'; workerId: number; workerName: string | null; since: Date; others: number }
  | { kind: 'running'; workerId: number; workerName: string | null; since: Date; isWorkerLive: boolean }
  /**
   * `parent`: the job it was to run after that has not succeeded; `cause`: where that began, if not with the parent
   * itself.
   */
  | { kind: 'ended'; at: Date; error: string | null; parent: NamedJob | null; cause: NamedJob | null }
)

export interface NamedJob {
  id: JobId
  task: string
  state: JobState
}

export interface NamedWorker {
  id: number
  name: string
}

export interface SlotHolder {
  id: JobId
  workerId: number
}

/** What the closest of the live workers lacks; `task` alone when none serves it. */
export interface Lacking {
  task?: string
  queue?: string
  tag?: string
  constraints?: Record<string, string>
}
