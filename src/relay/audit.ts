/** The verb *audit*, over both stores: asks whether what longshore promises holds right now, and changes nothing. */
import { type Duration, toTimerMs } from '../job/duration.ts'
import { auditPostgres, type Violation } from '../postgres/audit.ts'
import { checkDeployment, type DeploymentOptions, withPool } from '../postgres/once.ts'
import type { RedisConfig } from '../redis/redis-config.ts'
import { auditDispatch } from './audit-dispatch.ts'

export interface AuditOptions extends DeploymentOptions {
  /** Where Redis is, if jobs go through it: then what it holds is compared with Postgres as well. */
  redis?: RedisConfig
  /** Every job that was enqueued, and no other: then none may be missing, and none may be there that is not named. */
  enqueued?: readonly string[]
  /** Nothing is left to do: then every job must have ended. Default false. */
  isDrained?: boolean
  /** How late rescue, relay, due jobs and the end of groups may be. Default `'10s'`. */
  grace?: Duration
}

/** What does not hold, at most 100 findings for each question; empty when everything is in order. */
export async function audit(options: AuditOptions): Promise<Violation[]> {
  checkDeployment('audit', options, ['redis', 'enqueued', 'isDrained', 'grace'])
  const { redis, enqueued, isDrained, grace = '10s' } = options
  const graceMs = toTimerMs(grace, 'grace')
  return withPool(options, async (pool, schema) => [
    ...(await auditPostgres(pool, schema, { enqueued, isDrained, graceMs })),
    ...(redis === undefined ? [] : await auditDispatch(pool, { redis, schema })),
  ])
}
