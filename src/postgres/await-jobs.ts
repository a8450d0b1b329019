/** The verb *await*: says that somebody waits for jobs to end, so that settle tells them. */
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from './schema-name.ts'

/** How much longer than the wait itself a row is kept, should nobody remove it. */
const GRACE_MS = 60_000

/** `wantsLogs`: and whenever there is more of their logs. */
export async function awaitJobs(
  db: Queryable,
  schema: string,
  waiter: string,
  waits: { id: string; timeoutMs: number }[],
  wantsLogs = false,
): Promise<void> {
  if (waits.length === 0) return
  await db.query(
    inSchema(
      schema,
      `insert into longshore.awaited (job_id, waiter, expires_at, wants_logs)
       select w.id, $1, now() + w.ms * interval '1 millisecond', $4
       from unnest($2::uuid[], $3::bigint[]) as w(id, ms)
       on conflict (job_id, waiter) do update set expires_at = greatest(awaited.expires_at, excluded.expires_at)`,
    ),
    [waiter, waits.map(wait => wait.id), waits.map(wait => wait.timeoutMs + GRACE_MS), wantsLogs],
  )
}

export async function forgetAwaited(
  db: Queryable,
  schema: string,
  waiter: string,
  ids: string[],
): Promise<void> {
  if (ids.length === 0) return
  await db.query(inSchema(schema, 'delete from longshore.awaited where job_id = any ($1) and waiter = $2'), [
    ids,
    waiter,
  ])
}
