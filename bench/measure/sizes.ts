/** Owns how much is measured: enough for a figure that holds, or (`--quick`) for a look in about a minute. */
import type { Past } from '../jobs/past.ts'

export interface Sizes {
  readonly rounds: number
  /** How long single enqueues are counted. */
  readonly enqueueMs: number
  readonly bulkJobs: number
  readonly drainJobs: number
  /** That go the whole way, from producer to worker. */
  readonly wholeJobs: number
  /** Drained one by one through few slots. */
  readonly slowJobs: number
  /** Drained by eight worker processes. */
  readonly highJobs: number
  /** Ready jobs that stand before those a claim may have. */
  readonly ahead: readonly [number, number]
  readonly backlog: number
  readonly keys: number
  /** Claims that are timed, one by one. */
  readonly claims: number
  readonly lightLoadMs: number
  readonly streamMs: number
  /** Jobs that are drained while others stand behind them, or beside a history. */
  readonly firstJobs: number
  /** Ready jobs that stand behind those; variants multiply it by up to 500. */
  readonly standing: number
  readonly historyRows: number
  /** Jobs of groups of a day that is over. */
  readonly oldDayJobs: number
  /** Drained by a fleet of warm worker processes. */
  readonly fleetJobs: number
  /** Drained by a crowd of workers, or under limits by key. */
  readonly crowdJobs: number
  readonly crowdMs: number
  /** How long a fleet of unlike workers gets its load. */
  readonly fleetMs: number
  /** How long idle workers are watched: a multiple of the 5 s between two beats. */
  readonly idleMs: number
  readonly diamonds: number
  readonly chainJobs: number
  /** Jobs of the other graphs. */
  readonly graphJobs: number
  /** A quarter of the time in which a transaction is opened, and held from the second quarter on. */
  readonly quarterMs: number
  readonly rebuildJobs: number
  /** What an aged deployment has behind it. */
  readonly past: Past
  /** How long an aged deployment is watched while it is idle. */
  readonly agedIdleMs: number
  /** How long to wait for a quiet machine before each measurement. */
  readonly patienceMs: number
}

export const FULL: Omit<Sizes, 'rounds'> = {
  enqueueMs: 2500,
  bulkJobs: 100_000,
  drainJobs: 100_000,
  wholeJobs: 100_000,
  slowJobs: 10_000,
  highJobs: 100_000,
  ahead: [500_000, 2_000_000],
  backlog: 1_000_000,
  keys: 1000,
  claims: 1000,
  lightLoadMs: 6000,
  streamMs: 20_000,
  firstJobs: 60_000,
  standing: 10_000,
  historyRows: 10_000_000,
  oldDayJobs: 5_000_000,
  fleetJobs: 100_000,
  crowdJobs: 20_000,
  crowdMs: 5000,
  fleetMs: 20_000,
  idleMs: 10_000,
  diamonds: 10_000,
  chainJobs: 1000,
  graphJobs: 10_000,
  quarterMs: 60_000,
  rebuildJobs: 1_000_000,
  past: { keys: 100_000, queues: 5000, ended: 600_000 },
  agedIdleMs: 30_000,
  patienceMs: 5000,
}

export const QUICK: Omit<Sizes, 'rounds'> = {
  enqueueMs: 800,
  bulkJobs: 30_000,
  drainJobs: 25_000,
  wholeJobs: 25_000,
  slowJobs: 3000,
  highJobs: 40_000,
  ahead: [50_000, 200_000],
  backlog: 100_000,
  keys: 1000,
  claims: 300,
  lightLoadMs: 1500,
  streamMs: 3000,
  firstJobs: 30_000,
  standing: 1000,
  historyRows: 500_000,
  oldDayJobs: 500_000,
  fleetJobs: 10_000,
  crowdJobs: 6000,
  crowdMs: 3000,
  fleetMs: 5000,
  idleMs: 5000,
  diamonds: 2000,
  chainJobs: 300,
  graphJobs: 3000,
  quarterMs: 15_000,
  rebuildJobs: 200_000,
  past: { keys: 2000, queues: 100, ended: 30_000 },
  agedIdleMs: 10_000,
  patienceMs: 500,
}

/** Jobs in one bulk call. */
export const BULK = 1000
