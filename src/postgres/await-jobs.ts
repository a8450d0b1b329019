/** The verb *await*: says that somebody waits for a job's end, so that settle tells them. */
import type { JobId } from '../job/job-id.ts'
import type { Queryable } from './queryable.ts'
import { inSchema } from './schema-name.ts'

export async function awaitJob(
  db: Queryable,
  schema: string,
  wait: { id: JobId; waiter: string; timeoutMs: number },
): Promise<void> {
  await db.query(
    inSchema(
      schema,
      `insert into longshore.awaited (job_id, waiter, expires_at)
       values ($1, $2, now() + $3 * interval '1 millisecond')
       on conflict (job_id, waiter) do update set expires_at = greatest(awaited.expires_at, excluded.expires_at)`,
    ),
    [wait.id, wait.waiter, wait.timeoutMs + 60_000],
  )
}

export async function forgetAwaited(db: Queryable, schema: string, id: JobId, waiter: string): Promise<void> {
  await db.query(inSchema(schema, 'delete from longshore.awaited where job_id = $1 and waiter = $2'), [
    id,
    waiter,
  ])
}
