/** The duty of limits that are much used beside a snapshot that is held open: they move to their next era, see `renew_limits.sql`. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from '../postgres/schema-name.ts'
import type { Holder } from '../postgres/secret.ts'

/** In one turn; the next turn goes on. */
const TURN_MS = 300
/** Before limits are asked for again of which transactions just held slot groups. */
const AGAIN_MS = 3

interface Look {
  seen: string
  waiting: number[]
}

export function createLimitRenewal(
  db: Queryable,
  schema: string,
  { name, secret }: Holder,
): () => Promise<void> {
  let last: Look | undefined
  return async () => {
    for (const end = performance.now() + TURN_MS; ; ) {
      const { rows } = await db.query(
        inSchema(
          schema,
          'select seen, waiting from longshore.renew_limits($1, $2, p_holder => $3, p_secret => $4)',
        ),
        [last?.seen ?? null, last?.waiting ?? [], name, secret],
      )
      last = rows[0] as Look | undefined
      if (!last?.waiting.length || performance.now() > end) return
      await pause(AGAIN_MS)
    }
  }
}
