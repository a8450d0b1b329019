/** How many jobs a worker may claim at this moment: pure rules over its permits and the pressure it is under. */

export interface Pressure {
  /** The share of its memory that the process uses, 0 to 1. */
  readonly memory: number
  /** The 99th percentile of how long handlers took of late; 0: none has ended. */
  readonly p99Ms: number
}

export interface PressureLimits {
  /** Above this share of memory claims are halved. */
  readonly memoryThreshold: number
  /** Above this p99 claims shrink to 70 %; none: they do not. */
  readonly latencyThresholdMs?: number | undefined
}

const STOP_BELOW = 0.1
const RESUME_FROM = 0.2
const UNDER_MEMORY = 0.5
const UNDER_LATENCY = 0.7
const FIRST_CLAIMED = 10
const MOST_CLAIMED = 500

/**
 * Too few permits are free to be worth a claim, until enough are: a worker that is nearly full claims in batches, not one by
 * one. With few permits each of them counts.
 */
export function isSaturated(wasSaturated: boolean, free: number, max: number): boolean {
  const share = wasSaturated ? RESUME_FROM : STOP_BELOW
  return free < Math.max(1, max * share)
}

export function pressureFactor(pressure: Pressure, limits: PressureLimits): number {
  let factor = 1
  if (pressure.memory > limits.memoryThreshold) factor *= UNDER_MEMORY
  if (limits.latencyThresholdMs !== undefined && pressure.p99Ms > limits.latencyThresholdMs)
    factor *= UNDER_LATENCY
  return factor
}

/** Half-way from the threshold to the end: the next claims must not add to what is there. */
export const isCritical = (pressure: Pressure, limits: PressureLimits): boolean =>
  pressure.memory > (1 + limits.memoryThreshold) / 2

/**
 * How many jobs the worker may hold at once, going by what the most that it has held did to its memory: as if all of the memory
 * were theirs. So a burst of heavy jobs is met in steps that become smaller as the threshold comes nearer.
 */
export const holdable = (most: number, pressure: Pressure, limits: PressureLimits): number =>
  Math.floor((most * limits.memoryThreshold) / Math.max(pressure.memory, 1e-6))

/** A worker that was idle begins with a few, and doubles: others were woken for the same burst and come a moment later. */
export const firstBatch = (claimBatchSize: number): number => Math.min(FIRST_CLAIMED, claimBatchSize)

/**
 * How many jobs a claim may bring: a batch, or as many as may follow those that have ended since the last one. So claims
 * grow while short jobs keep coming; a worker that only fills its permits leaves others their share of a burst.
 */
export const batchSize = (batch: number, following: number): number =>
  Math.max(batch, Math.min(MOST_CLAIMED, following))

/**
 * How many jobs may follow `ended` ones. Twice as many if the last claim left jobs behind. As many if it lacked slots:
 * those of the ended runs pass on to jobs of the same call; freeing any that are left over costs more than the jobs.
 * None otherwise: it is not known whether there are more jobs.
 */
export function followers(ended: number, last: { hasBacklog: boolean; isLimited: boolean }): number {
  if (last.hasBacklog) return 2 * ended
  return last.isLimited ? ended : 0
}

export interface Room {
  /** Permits that no run has and no claim under way has asked for. */
  readonly free: number
  /** Jobs that are asked for in calls under way. */
  readonly asked: number
  /** Jobs that it may hold in addition to those that run and those asked for, see `holdable`. */
  readonly more: number
  readonly batch: number
  readonly isSaturated: boolean
  readonly factor: number
  readonly isCritical: boolean
  /** Runs that have ended since the last claim. */
  readonly ended: number
  /** The last claim is longer ago than the poll interval: what is free is used all the same, one job if memory is short. */
  readonly isOverdue: boolean
}

export function claimSize(room: Room): number {
  if (room.free <= 0) return 0
  if (room.isSaturated && !room.isOverdue) return 0
  // One is always allowed, but not beside others that may still show what they need.
  if (room.more < 1 && room.asked > 0) return 0
  const most = Math.min(room.free, room.batch, Math.max(1, room.more))
  const size = Math.max(1, Math.floor(most * room.factor))
  if (!room.isCritical) return size
  // For two runs that have ended one may start, so that fewer and fewer run; at least one, so that none starves.
  const replaced = Math.max(Math.floor(room.ended * UNDER_MEMORY), room.ended > 0 || room.isOverdue ? 1 : 0)
  return Math.min(size, replaced)
}
