/** The verb *read*: jobs by id, from the unfinished and from the history. */
import { parseConstraintTag } from '../job/constraints.ts'
import type { FinishedJob, Job, StoredError } from '../job/job.ts'
import type { JobId } from '../job/job-id.ts'
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from './schema-name.ts'

const UNFINISHED = `
  select j.id, j.state, j.payload, j.attempts, j.max_attempts, j.created_at, j.started_at, j.worker_id, j.error,
    longshore.priority_of(j.score) as priority, longshore.run_at_of(j.score) as run_at, l.task, l.queue, l.tag,
    l.constraint_tag, null::timestamptz as finished_at, null::jsonb as result,
    j.state <> 'running' and exists (select from longshore.eligible_workers(j.lane)) as has_worker
  from longshore.jobs j left join longshore.lanes l on l.id = j.lane
  where j.id = any ($1)`

const FINISHED = `
  select f.id, f.state, f.payload, f.attempts, f.max_attempts, f.created_at, f.started_at, f.worker_id, f.error,
    longshore.priority_of(f.score) as priority, longshore.run_at_of(f.score) as run_at, l.task, l.queue, l.tag,
    l.constraint_tag, f.finished_at, f.result, false as has_worker
  from longshore.finished_jobs f left join longshore.lanes l on l.id = f.lane
  where f.id = any ($1)`

export async function readJobs(db: Queryable, schema: string, ids: JobId[]): Promise<Job[]> {
  const { rows } = await db.query(inSchema(schema, `${UNFINISHED} union all ${FINISHED}`), [ids])
  return rows.map(toJob)
}

/** The task of a job, or undefined when there is none (or its history has been dropped). */
export async function readTask(db: Queryable, schema: string, id: JobId): Promise<string | undefined> {
  const text = `select l.task from (
      select j.lane from longshore.jobs j where j.id = $1
      union all select f.lane from longshore.finished_jobs f where f.id = $1
    ) found join longshore.lanes l on l.id = found.lane limit 1`
  const { rows } = await db.query(inSchema(schema, text), [id])
  return rows[0]?.['task'] as string | undefined
}

/** Those of the jobs that have ended. */
export async function readFinishedJobs(db: Queryable, schema: string, ids: JobId[]): Promise<FinishedJob[]> {
  const { rows } = await db.query(inSchema(schema, FINISHED), [ids])
  return rows.map(toJob).filter(job => job.isFinished)
}

function toJob(row: Record<string, unknown>): Job {
  const facts = {
    id: row['id'] as JobId,
    task: String(row['task']),
    queue: String(row['queue']),
    tag: String(row['tag']),
    constraints: parseConstraintTag(String(row['constraint_tag'] ?? 'c:')),
    payload: row['payload'],
    priority: row['priority'] as number,
    runAt: row['run_at'] as Date,
    createdAt: row['created_at'] as Date,
    attempts: row['attempts'] as number,
    maxAttempts: row['max_attempts'] as number,
    error: row['error'] as StoredError | null,
  }
  const state = row['state'] as Job['state']
  const ended = {
    isFinished: true as const,
    startedAt: row['started_at'] as Date | null,
    finishedAt: row['finished_at'] as Date,
  }
  switch (state) {
    case 'waiting':
    case 'scheduled':
    case 'ready':
      return { ...facts, state, isFinished: false, hasWorker: row['has_worker'] as boolean }
    case 'running':
      return {
        ...facts,
        state,
        isFinished: false,
        startedAt: row['started_at'] as Date,
        workerId: row['worker_id'] as number,
      }
    case 'succeeded':
      return { ...facts, ...ended, state, result: row['result'] ?? null }
    case 'failed':
      return { ...facts, ...ended, state, error: row['error'] as StoredError }
    case 'cancelled':
    case 'dependency_failed':
      return { ...facts, ...ended, state }
  }
}
