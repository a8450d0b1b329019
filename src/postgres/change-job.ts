/** The verb *change*: another priority, time or constraint for a job that has not started. */
import type { Change } from '../job/enqueue-options.ts'
import type { JobId } from '../job/job-id.ts'
import type { Queryable } from '../job/queryable.ts'
import { explainRefusal } from './refused.ts'
import { inSchema } from './schema-name.ts'

/** `running` and `finished`: too late, nothing was changed. */
export type ChangeAnswer = 'changed' | 'running' | 'finished' | 'unknown'

export async function changeJob(
  db: Queryable,
  schema: string,
  id: JobId,
  change: Change,
): Promise<ChangeAnswer> {
  const { rows } = await db
    .query(inSchema(schema, 'select longshore.change($1, $2::text::jsonb) as answer'), [
      id,
      JSON.stringify(change),
    ])
    .catch(explainRefusal)
  return rows[0]?.['answer'] as ChangeAnswer
}
