/** Groups as a person looks at them: many of them, or one with its jobs. */
import type { GroupStatus } from '../job/group.ts'
import type { JobState } from '../job/job.ts'
import type { Queryable } from '../job/queryable.ts'
import { readGroups } from './groups.ts'
import { inSchema } from './schema-name.ts'

/** Newest first; those that have ended too if `all`. */
export async function listGroups(
  db: Queryable,
  schema: string,
  { all, limit }: { all: boolean; limit: number },
): Promise<GroupStatus[]> {
  const { rows } = await db.query(
    inSchema(
      schema,
      `select id from longshore.groups where $1 or finished_at is null order by created_at desc, id desc limit $2`,
    ),
    [all, limit],
  )
  const ids = rows.map(row => String(row['id']))
  const groups = new Map((await readGroups(db, schema, ids)).map(group => [group.id, group]))
  return ids.flatMap(id => groups.get(id) ?? [])
}

/** A job of a group. `reason`: what keeps it, or how it failed; null: nothing of either. */
export interface JobOfGroup {
  id: string
  task: string
  state: JobState
  workerId: number | null
  reason: string | null
}

export interface GroupJobs {
  /** How many jobs of each task are in each state. */
  tasks: { state: JobState; task: string; count: number }[]
  /** Those that have not succeeded, as many as were asked for, running ones first. */
  jobs: JobOfGroup[]
}

export async function readGroupJobs(
  db: Queryable,
  schema: string,
  group: string,
  limit: number,
): Promise<GroupJobs> {
  const { rows: tasks } = await db.query(
    inSchema(
      schema,
      `select state, task, count(*) as count from longshore.job_status where group_id = $1
       group by state, task order by state, task`,
    ),
    [group],
  )
  const { rows: jobs } = await db.query(
    inSchema(
      schema,
      `select s.id, s.task, s.state, s.worker_id,
         coalesce((select b.reason from longshore.blocked b where b.id = s.id), s.error) as reason
       from (
         select * from longshore.job_status where group_id = $1 and state <> 'succeeded'
         order by array_position('{running,failed,ready,scheduled,waiting,dependency_failed,cancelled}', state::text), id
         limit $2
       ) s`,
    ),
    [group, limit],
  )
  return {
    tasks: tasks.map(row => ({
      state: row['state'] as JobState,
      task: String(row['task']),
      count: Number(row['count']),
    })),
    jobs: jobs.map(row => ({
      id: String(row['id']),
      task: String(row['task']),
      state: row['state'] as JobState,
      workerId: row['worker_id'] as number | null,
      reason: row['reason'] as string | null,
    })),
  }
}
