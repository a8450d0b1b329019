/** Duties of the upkeep that fail, as the leader has noted them: see `note_duty.sql`. */
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from './schema-name.ts'

export interface FailingDuty {
  duty: string
  /** By the database's clock. */
  forMs: number
  error: string
}

export async function readFailingDuties(db: Queryable, schema: string): Promise<FailingDuty[]> {
  const { rows } = await db.query(
    inSchema(
      schema,
      `select d.name, d.error, (extract(epoch from clock_timestamp() - d.failing_since) * 1000)::bigint as for_ms
       from longshore.duties d order by d.failing_since, d.name limit 100`,
    ),
  )
  return rows.map(row => ({
    duty: String(row['name']),
    forMs: Math.max(0, Number(row['for_ms'])),
    error: String(row['error']),
  }))
}

/** As a probe wants it. */
export async function refuseFailing(db: Queryable, schema: string): Promise<void> {
  const failing = await readFailingDuties(db, schema)
  if (failing.length > 0)
    throw new Error(
      failing
        .map(({ duty, forMs, error }) => `${duty} for ${Math.round(forMs / 1000)} s: ${error}`)
        .join('; '),
    )
}
