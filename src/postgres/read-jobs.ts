/** The verb *read*: jobs by id, from the unfinished and from the history. */
import { parseConstraintTag } from '../job/constraints.ts'
import type { FinishedJob, Job, StoredError } from '../job/job.ts'
import type { JobId } from '../job/job-id.ts'
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from './schema-name.ts'
import { asMs, toDate } from './times.ts'

const READ = `
  select id, state, payload, attempts, max_attempts, ${asMs('created_at')} as created_at, ${asMs('started_at')} as started_at, worker_id,
    error, priority, ${asMs('run_at')} as run_at, task, queue, tag, constraint_tag, ${asMs('finished_at')} as finished_at, result, has_worker
  from longshore.read_jobs($1, $2)`

export async function readJobs(db: Queryable, schema: string, ids: JobId[]): Promise<Job[]> {
  const { rows } = await db.query(inSchema(schema, READ), [ids, false])
  return rows.map(toJob)
}

/** The task of a job, or undefined when there is none (or its history has been dropped). */
export async function readTask(db: Queryable, schema: string, id: JobId): Promise<string | undefined> {
  const text = 'select task from longshore.read_jobs(array[$1]::uuid[], false)'
  const { rows } = await db.query(inSchema(schema, text), [id])
  return rows[0]?.['task'] as string | undefined
}

/** Those of the jobs that have ended. */
export async function readFinishedJobs(db: Queryable, schema: string, ids: JobId[]): Promise<FinishedJob[]> {
  const { rows } = await db.query(inSchema(schema, READ), [ids, true])
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
    runAt: toDate(row['run_at']),
    createdAt: toDate(row['created_at']),
    attempts: row['attempts'] as number,
    maxAttempts: row['max_attempts'] as number,
    error: row['error'] as StoredError | null,
  }
  const state = row['state'] as Job['state']
  const ended = {
    isFinished: true as const,
    startedAt: toDate(row['started_at'], true),
    finishedAt: toDate(row['finished_at']),
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
        startedAt: toDate(row['started_at']),
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
