/** The verbs *read parents* and *read group*: what a run may know of the jobs around it. */
import type { JobId } from '../job/job-id.ts'
import type { Queryable } from '../job/queryable.ts'
import type { ParentJob } from '../job/task.ts'
import { explainRefusal } from './refused.ts'
import { inSchema } from './schema-name.ts'
import type { WorkerKey } from './secret.ts'

interface Run {
  readonly id: JobId
  readonly leaseToken: string
}

/** A page of the parents that have ended, in id order, behind `after`; of one task, if one is named. */
export async function readParents(
  db: Queryable,
  schema: string,
  worker: WorkerKey,
  run: Run,
  task: string | null,
  after: string,
  limit: number,
): Promise<ParentJob[]> {
  const { rows } = await db
    .query(inSchema(schema, 'select * from longshore.read_parents($1, $2, $3, $4, $5, $6, $7)'), [
      worker.id,
      run.id,
      run.leaseToken,
      after,
      task,
      limit,
      worker.secret,
    ])
    .catch(explainRefusal)
  return rows as unknown as ParentJob[]
}

/** The group of a job that this worker runs, or null. */
export async function readGroupOf(
  db: Queryable,
  schema: string,
  worker: WorkerKey,
  run: Run,
): Promise<string | null> {
  const { rows } = await db
    .query(inSchema(schema, 'select longshore.read_group_of($1, $2, $3, $4) as id'), [
      worker.id,
      run.id,
      run.leaseToken,
      worker.secret,
    ])
    .catch(explainRefusal)
  return rows[0]?.['id'] as string | null
}
