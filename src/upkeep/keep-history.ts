/** The duty of the history and of job logs: partitions made ahead, old ones dropped, waits that have expired forgotten. */
import type { Pool } from '../postgres/connect.ts'
import { inSchema } from '../postgres/schema-name.ts'
import type { Holder } from '../postgres/secret.ts'

/** Locks are asked for briefly: settles go on, and the next turn tries again. */
const LOCK_TIMEOUT = '200ms'

export async function keepHistory(pool: Pool, schema: string, { name, secret }: Holder): Promise<void> {
  const leader = [name, secret]
  const asLeader = 'p_holder => $1, p_secret => $2'
  await briefly(pool, inSchema(schema, `select longshore.prepare_history(${asLeader})`), leader)
  await briefly(pool, inSchema(schema, 'select longshore.forget_history($1, $2)'), leader)
  await briefly(pool, inSchema(schema, 'select longshore.forget_expired($1, $2)'), leader)
  // The last: locks on the logs hold up nothing else.
  await briefly(pool, inSchema(schema, `select longshore.maintain_log_partitions(${asLeader})`), leader)
}

function briefly(pool: Pool, text: string, values: unknown[]): Promise<void> {
  return pool.transaction(async tx => {
    await tx.query(`set local lock_timeout = '${LOCK_TIMEOUT}'`)
    await tx.query(text, values)
  })
}
