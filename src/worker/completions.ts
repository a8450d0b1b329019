/** Settles runs in transactions of their own, see `JobContext.complete`, over connections that only they use. */
import { LongshoreError } from '../job/errors.ts'
import type { Queryable } from '../job/queryable.ts'
import { type Completed, completeJob } from '../postgres/complete-job.ts'
import { openPool, type Pool } from '../postgres/connect.ts'
import type { PostgresConfig } from '../postgres/postgres-config.ts'
import type { WorkerKey } from '../postgres/secret.ts'
import type { Lease } from '../postgres/settle-and-claim.ts'
import { isTransientError } from '../postgres/transient-error.ts'
import { toUnavailable } from '../postgres/unavailable.ts'
import type { Logger } from '../runtime/logger.ts'
import { withRetry } from '../runtime/retry.ts'

export interface Completions {
  complete(lease: Lease, work: (tx: Queryable) => Promise<string | null>): Promise<Completed>
  close(): Promise<void>
}

/** What is not used is closed: a worker that seldom completes has no more connections than others. */
const IDLE_MS = 1000
const PATIENCE = { firstMs: 50, maxMs: 1000, forMs: 10_000 }

export function createCompletions(options: {
  postgres: PostgresConfig
  /** Completions under way at once; more wait. */
  connections: number
  schema: string
  worker: WorkerKey
  logger: Logger
}): Completions {
  const { schema, worker, logger } = options
  let hasClosed = false
  /** Opened by the first completion: most workers never need it. */
  let opened: Pool | undefined
  const pool = () => {
    opened ??= openPool(
      options.postgres,
      options.connections,
      error => logger.warn({ err: error }, 'a connection to Postgres broke; it is replaced'),
      { isLent: true, idleMs: IDLE_MS },
    )
    return opened
  }
  return {
    async complete(lease, work) {
      if (hasClosed) throw new LongshoreError('LEASE_LOST', 'the worker has given the job back')
      // Until the work has begun nothing has happened, and a Postgres that is away for a moment is waited for.
      let hasBegun = false
      const begin = (tx: Queryable) => {
        hasBegun = true
        return work(tx)
      }
      return withRetry(() => completeJob(pool(), schema, worker, lease, begin), {
        ...PATIENCE,
        isTransient: error => !hasBegun && !hasClosed && isTransientError(error),
      }).catch(error => {
        throw hasBegun ? error : toUnavailable(error)
      })
    },
    async close() {
      hasClosed = true
      await opened?.end()
    },
  }
}
