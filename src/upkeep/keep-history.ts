/** The duty of the history and of job logs: partitions made ahead, old ones dropped, waits that have expired forgotten. */
import type { Pool } from '../postgres/connect.ts'
import { HISTORY_DAYS_AHEAD } from '../postgres/migrate.ts'
import { inSchema } from '../postgres/schema-name.ts'

/** Locks are asked for briefly: settles go on, and the next turn tries again. */
const LOCK_TIMEOUT = '200ms'

export async function keepHistory(pool: Pool, schema: string): Promise<void> {
  await briefly(pool, inSchema(schema, 'select longshore.prepare_history($1)'), [HISTORY_DAYS_AHEAD])
  await briefly(pool, inSchema(schema, 'select longshore.forget_history()'), [])
  await briefly(pool, inSchema(schema, 'delete from longshore.awaited where expires_at < now()'), [])
  // The last: whoever holds the logs holds up nothing else.
  await briefly(pool, inSchema(schema, 'select longshore.tend_logs($1)'), [HISTORY_DAYS_AHEAD])
}

function briefly(pool: Pool, text: string, values: unknown[]): Promise<void> {
  return pool.transaction(async tx => {
    await tx.query(`set local lock_timeout = '${LOCK_TIMEOUT}'`)
    await tx.query(text, values)
  })
}
