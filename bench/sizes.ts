/** Owns how much is measured: enough for a figure that holds, or (`--quick`) for a look in about a minute. */
export interface Sizes {
  readonly rounds: number
  /** How long single enqueues are counted. */
  readonly enqueueMs: number
  readonly bulkJobs: number
  readonly drainJobs: number
  readonly lightLoadMs: number
  readonly streamMs: number
  /** How long to wait for a quiet machine before each measurement. */
  readonly patienceMs: number
}

export const FULL: Sizes = {
  rounds: 3,
  enqueueMs: 4000,
  bulkJobs: 150_000,
  drainJobs: 150_000,
  lightLoadMs: 10_000,
  streamMs: 15_000,
  patienceMs: 5000,
}

export const QUICK: Sizes = {
  rounds: 1,
  enqueueMs: 1500,
  bulkJobs: 40_000,
  drainJobs: 50_000,
  lightLoadMs: 3000,
  streamMs: 3000,
  patienceMs: 500,
}

/** Jobs in one bulk call. */
export const BULK = 1000
