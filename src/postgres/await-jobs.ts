/** The verb *await*: notes that this process waits for jobs to end, so that settle notifies it. */
import type { Queryable } from '../job/queryable.ts'
import { explainRefusal } from './refused.ts'
import { inSchema } from './schema-name.ts'

/** How much longer than the wait itself a row is kept if it is not removed. */
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
  await db
    .query(inSchema(schema, 'select longshore.await_jobs($1, $2, $3, $4)'), [
      waiter,
      waits.map(wait => wait.id),
      waits.map(wait => wait.timeoutMs + GRACE_MS),
      wantsLogs,
    ])
    .catch(explainRefusal)
}

export async function forgetAwaited(
  db: Queryable,
  schema: string,
  waiter: string,
  ids: string[],
): Promise<void> {
  if (ids.length === 0) return
  await db.query(inSchema(schema, 'select longshore.forget_awaited($1, $2)'), [waiter, ids])
}
