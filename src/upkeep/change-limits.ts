/** The duty of limits that change: the limits of a task's keys become what the task says, see `change_key_limits.sql`. */
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from '../postgres/schema-name.ts'
import type { Holder } from '../postgres/secret.ts'
import type { Logger } from '../runtime/logger.ts'

/** In one turn; the next turn goes on. Claims run between the pages. */
const TURN_MS = 500

export async function changeLimits(
  db: Queryable,
  schema: string,
  { name, secret }: Holder,
  logger: Logger,
): Promise<void> {
  for (const end = performance.now() + TURN_MS; performance.now() < end; ) {
    const { rows } = await db.query(
      inSchema(schema, 'select task, changed, is_done from longshore.change_limits($1, $2)'),
      [name, secret],
    )
    const page = rows[0] as { task: string | null; changed: number; is_done: boolean } | undefined
    if (!page || page.task === null) return
    if (page.is_done)
      logger.info({ task: page.task }, 'the limits of all concurrency keys of a task are changed')
    // The rest is locked by other transactions at the moment.
    else if (page.changed === 0) return
  }
}
