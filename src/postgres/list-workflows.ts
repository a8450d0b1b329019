/** Workflows as a person looks at them. */
import type { JobState } from '../job/job.ts'
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from './schema-name.ts'

export interface WorkflowStatus {
  key: string
  /** Jobs that have not ended and do not have the turn. */
  waiting: number
  holder: { id: string; task: string; state: JobState } | null
  /** The job whose failure halted it. */
  haltedBy: { id: string; error: string | null } | null
}

/** Those that have jobs or are halted; the halted ones first, then the oldest. */
export async function listWorkflows(
  db: Queryable,
  schema: string,
  { key, limit }: { key?: string | undefined; limit: number },
): Promise<WorkflowStatus[]> {
  const { rows } = await db.query(
    inSchema(
      schema,
      `select w.key, w.halted_by,
         (select count(*) from longshore.jobs j where j.workflow = w.id and not j.has_turn) as waiting,
         (select s.error from longshore.job_status s where s.id = w.halted_by limit 1) as error,
         t.id, l.task, t.state
       from (
         select * from longshore.workflows where $1::text is null or key = $1
         order by halted_by is null, id limit $2
       ) w
       left join longshore.jobs t on t.workflow = w.id and t.has_turn
       left join longshore.lanes l on l.id = t.lane
       order by w.halted_by is null, w.id`,
    ),
    [key ?? null, limit],
  )
  return rows.map(row => ({
    key: String(row['key']),
    waiting: Number(row['waiting']),
    holder:
      row['id'] === null
        ? null
        : { id: String(row['id']), task: String(row['task']), state: row['state'] as JobState },
    haltedBy:
      row['halted_by'] === null
        ? null
        : { id: String(row['halted_by']), error: row['error'] as string | null },
  }))
}
