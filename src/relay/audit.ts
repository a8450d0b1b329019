/** The verb *audit*, over both stores: asks whether what longshore promises holds right now, and changes nothing. */
import { type AuditedFacts, auditPostgres, type Violation } from '../postgres/audit.ts'
import { checkDeployment, type DeploymentOptions, withPool } from '../postgres/once.ts'
import type { RedisConfig } from '../redis/redis-config.ts'
import { auditDispatch } from './audit-dispatch.ts'

export interface AuditOptions extends DeploymentOptions, AuditedFacts {
  /** Where Redis is, if jobs go through it: then what it holds is compared with Postgres as well. */
  redis?: RedisConfig
}

/** What does not hold, at most 100 findings for each question; empty when everything is in order. */
export async function audit(options: AuditOptions): Promise<Violation[]> {
  checkDeployment('audit', options, ['redis', 'enqueued', 'isDrained', 'grace'])
  const { redis } = options
  return withPool(options, async (pool, schema) => [
    ...(await auditPostgres(pool, schema, options)),
    ...(redis === undefined ? [] : await auditDispatch(pool, { redis, schema })),
  ])
}
