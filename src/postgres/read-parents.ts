/** The verb *read parents*: what a job runs after, and how that ended. */
import type { JobId } from '../job/job-id.ts'
import type { Queryable } from '../job/queryable.ts'
import type { ParentJob } from '../job/task.ts'
import { inSchema } from './schema-name.ts'

/** A page of the parents that have ended, in id order, behind `after`; of one task, if one is named. */
export async function readParents(
  db: Queryable,
  schema: string,
  child: JobId,
  task: string | null,
  after: string,
  limit: number,
): Promise<ParentJob[]> {
  const { rows } = await db.query(inSchema(schema, 'select * from longshore.read_parents($1, $2, $3, $4)'), [
    child,
    after,
    task,
    limit,
  ])
  return rows as unknown as ParentJob[]
}

/** The group of an unfinished job, or null. */
export async function readGroupOf(db: Queryable, schema: string, id: JobId): Promise<string | null> {
  const { rows } = await db.query(inSchema(schema, 'select group_id from longshore.jobs where id = $1'), [id])
  return (rows[0]?.['group_id'] as string | null | undefined) ?? null
}
