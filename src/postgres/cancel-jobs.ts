/** The verb *cancel*. */
import type { JobId } from '../job/job-id.ts'
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from './schema-name.ts'

/**
 * `cancelled`: it never starts. `cancelling`: it runs; its signal fires, and however that run ends the job ends as
 * cancelled. `finished`: it had ended before. `unknown`: there is no such job, or its history has been dropped.
 */
export type CancelAnswer = 'cancelled' | 'cancelling' | 'finished' | 'unknown'

export async function cancelJobs(
  db: Queryable,
  schema: string,
  ids: readonly JobId[],
): Promise<Map<JobId, CancelAnswer>> {
  const text = 'select id, answer from longshore.cancel($1::text::uuid[])'
  const { rows } = await db.query(inSchema(schema, text), [`{${ids.join(',')}}`])
  return new Map(rows.map(row => [row['id'] as JobId, row['answer'] as CancelAnswer]))
}
