/** The lease for upkeep: a row in Postgres, by the database's clock. */
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from '../postgres/schema-name.ts'

/** Whoever stands later here takes the lease from whoever stands before. */
const RANKS = ['worker', 'relay', 'relay with Redis'] as const
export type LeaderRank = (typeof RANKS)[number]

/** Take or renew the lease. Returns the epoch, or null while somebody else leads. */
export async function lead(
  db: Queryable,
  schema: string,
  holder: string,
  leaseMs: number,
  rank: LeaderRank,
): Promise<string | null> {
  const { rows } = await db.query(inSchema(schema, 'select longshore.lead($1, $2, $3)::text as epoch'), [
    holder,
    leaseMs,
    RANKS.indexOf(rank),
  ])
  return (rows[0]?.['epoch'] as string | null) ?? null
}

/** Give the lease back, so that another need not wait until it runs out. */
export async function resign(db: Queryable, schema: string, holder: string): Promise<void> {
  await db.query(inSchema(schema, "update longshore.leader set expires_at = '-infinity' where holder = $1"), [
    holder,
  ])
}
