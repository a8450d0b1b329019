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
  })
  if (parsed.success) return parsed.data
  const problems = parsed.error.issues.map(issue => `${issue.path.join('.')}: ${issue.message}`)
  throw new LongshoreError('CONFIG_INVALID', `these worker settings are wrong: ${problems.join('; ')}`)
}
