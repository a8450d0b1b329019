/** Owns settings that come from the environment: parsed once, at the edge, all problems told at once. */
import { z } from 'zod'
import { LongshoreError } from '../job/errors.ts'

const workerSettings = z.object({
  /** Jobs that run at once in one worker. */
  maxConcurrentTasks: z.coerce.number().int().min(1).max(100_000).default(1000),
  /** Jobs in one claim; under a backlog it grows within the free permits. */
  claimBatchSize: z.coerce.number().int().min(1).max(1000).default(50),
  /** How often an idle worker looks by itself; a wake-up ends the wait. */
  pollIntervalMs: z.coerce.number().int().min(1).max(3_600_000).default(100),
  /** Claims are halved while more than this share of the memory is used: of the heap, or of the control group or machine. */
  memoryThreshold: z.coerce.number().gt(0).max(1).default(0.8),
  /** Claims shrink to 70 % while the p99 of handlers' durations is above this; without it they do not. */
  latencyThresholdMs: z.coerce.number().min(1).optional(),
})

export type WorkerSettings = z.infer<typeof workerSettings>

/** Options win over `MAX_CONCURRENT_TASKS`, `CLAIM_BATCH_SIZE` and `POLL_INTERVAL_MS`, which win over the defaults. */
export function readWorkerSettings(
  options: { [K in keyof WorkerSettings]?: number | undefined },
  env: NodeJS.ProcessEnv = process.env,
): WorkerSettings {
  const parsed = workerSettings.safeParse({
    maxConcurrentTasks: options.maxConcurrentTasks ?? env['MAX_CONCURRENT_TASKS'],
    claimBatchSize: options.claimBatchSize ?? env['CLAIM_BATCH_SIZE'],
    pollIntervalMs: options.pollIntervalMs ?? env['POLL_INTERVAL_MS'],
    memoryThreshold: options.memoryThreshold ?? env['MEMORY_THRESHOLD'],
    latencyThresholdMs: options.latencyThresholdMs ?? env['LATENCY_THRESHOLD_MS'],
  })
  if (parsed.success) return parsed.data
  const problems = parsed.error.issues.map(issue => `${issue.path.join('.')}: ${issue.message}`)
  throw new LongshoreError('CONFIG_INVALID', `these worker settings are wrong: ${problems.join('; ')}`)
}

export const SCHEDULE_MODES = ['fanout', 'balanced'] as const
export const BALANCE_STRATEGIES = ['least-queue', 'round-robin', 'random'] as const

const scheduleSettings = z.object({
  /** `fanout`: a ready job is copied to every worker that may run it; `balanced`: to one. */
  scheduleMode: z.enum(SCHEDULE_MODES).default('fanout'),
  /** To which one: that with the fewest jobs queued and running, one after another, or any. */
  balanceStrategy: z.enum(BALANCE_STRATEGIES).default('least-queue'),
  /** To how many workers fanout copies at most, by the strategy; 0: to all that may run it. */
  fanoutWidth: z.coerce.number().int().min(0).max(1000).default(0),
})

export type ScheduleSettings = z.infer<typeof scheduleSettings>

/** Options win over `TASK_SCHEDULE_MODE`, `TASK_BALANCE_STRATEGY` and `TASK_FANOUT_WIDTH`, which win over the defaults. */
export function readScheduleSettings(
  options: { [K in keyof ScheduleSettings]?: ScheduleSettings[K] | undefined },
  env: NodeJS.ProcessEnv = process.env,
): ScheduleSettings {
  const parsed = scheduleSettings.safeParse({
    scheduleMode: options.scheduleMode ?? env['TASK_SCHEDULE_MODE'],
    balanceStrategy: options.balanceStrategy ?? env['TASK_BALANCE_STRATEGY'],
    fanoutWidth: options.fanoutWidth ?? env['TASK_FANOUT_WIDTH'],
  })
  if (parsed.success) return parsed.data
  const problems = parsed.error.issues.map(issue => `${issue.path.join('.')}: ${issue.message}`)
  throw new LongshoreError('CONFIG_INVALID', `these schedule settings are wrong: ${problems.join('; ')}`)
}

/** To how many workers a job is copied (0: all), and which. */
export function toSpread(settings: ScheduleSettings): {
  width: number
  strategy: ScheduleSettings['balanceStrategy']
} {
  return {
    width: settings.scheduleMode === 'balanced' ? 1 : settings.fanoutWidth,
    strategy: settings.balanceStrategy,
  }
}
