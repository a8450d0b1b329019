/** The lease for upkeep: a row in Postgres, by the database's clock. */
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from '../postgres/schema-name.ts'
import type { Holder } from '../postgres/secret.ts'

/** Each takes the lease from those before it. */
export type LeaderRank = 'worker' | 'relay' | 'relay with Redis'

const CALLS: Readonly<Record<LeaderRank, string>> = {
  worker: 'lead_as_worker($1, $2, $3)',
  relay: 'lead_as_relay($1, $2, false, $3)',
  'relay with Redis': 'lead_as_relay($1, $2, true, $3)',
}

/** Take or renew the lease. Returns the epoch, or null while another leads. */
export async function lead(
  db: Queryable,
  schema: string,
  holder: Holder,
  leaseMs: number,
  rank: LeaderRank,
): Promise<string | null> {
  const { rows } = await db.query(inSchema(schema, `select longshore.${CALLS[rank]}::text as epoch`), [
    holder.name,
    leaseMs,
    holder.secret,
  ])
  return (rows[0]?.['epoch'] as string | null) ?? null
}

/** Give the lease back, so that another need not wait until it runs out. */
export async function resign(db: Queryable, schema: string, holder: Holder): Promise<void> {
  await db.query(inSchema(schema, 'select longshore.resign($1, $2)'), [holder.name, holder.secret])
}

/** Postgres refused a duty, as another has taken the lease meanwhile. */
export const isNotLeader = (error: unknown) => (error as { code?: unknown } | null)?.code === 'LS006'
