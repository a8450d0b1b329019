/** The duty of what has expired: waits, and runs and workers whose last log lines have come, see `forget_expired.sql`. In short pages. */
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from '../postgres/schema-name.ts'
import type { Holder } from '../postgres/secret.ts'

/** In one turn; the next turn goes on. */
const TURN_MS = 300
/** When all has been looked at. */
const REST_MS = 10 * 60_000

interface Page {
  after_job: string | null
  after_waiter: string | null
  has_more: boolean
}

export function createExpiredForgetting(
  db: Queryable,
  schema: string,
  { name, secret }: Holder,
): () => Promise<void> {
  let restsUntil = 0
  let last: Page | undefined
  return async () => {
    if (performance.now() < restsUntil) return
    const end = performance.now() + TURN_MS
    do {
      const { rows } = await db.query(
        inSchema(schema, 'select * from longshore.forget_expired($1, $2, $3, $4)'),
        [name, secret, last?.after_job ?? null, last?.after_waiter ?? null],
      )
      last = rows[0] as unknown as Page
    } while (last.has_more && performance.now() < end)
    if (!last.has_more) restsUntil = performance.now() + REST_MS
  }
}
