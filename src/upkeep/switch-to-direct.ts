/** The duty of the outbox: it does not grow for ever when the relay that would read it is gone. */
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from '../postgres/schema-name.ts'
import type { Holder } from '../postgres/secret.ts'
import type { Logger } from '../runtime/logger.ts'

/** A relay that is restarted is back by then. */
const WITHOUT_RELAY_MS = 60_000

/** `leadingMs`: how long this process, which keeps no Redis in step, has led without a gap. */
export async function switchToDirect(
  db: Queryable,
  schema: string,
  holder: Holder,
  leadingMs: number,
  logger: Logger,
): Promise<void> {
  if (leadingMs < WITHOUT_RELAY_MS) return
  const { rows } = await db.query(inSchema(schema, 'select longshore.switch_to_direct($1, $2) as has_left'), [
    holder.name,
    holder.secret,
  ])
  if (rows[0]?.['has_left'])
    logger.warn(
      'no relay has kept Redis in step for a minute: jobs go directly through Postgres until one does. Start `longshore relay` with REDIS_URL',
    )
}
