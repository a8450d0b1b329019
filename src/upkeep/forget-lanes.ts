/** The duty of what is not used any more: lanes, and with them the names of tasks and queues, are forgotten; see `forget_lanes.sql`. */
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from '../postgres/schema-name.ts'
import type { Holder } from '../postgres/secret.ts'
import type { Logger } from '../runtime/logger.ts'

/** In one turn; the next turn goes on. Ten million jobs take some minutes so. */
const TURN_MS = 100

interface Piece {
  deleted: number
  is_idle: boolean
}

export async function forgetLanes(
  db: Queryable,
  schema: string,
  { name, secret }: Holder,
  logger: Logger,
): Promise<void> {
  let deleted = 0
  for (const end = performance.now() + TURN_MS; performance.now() < end; ) {
    const { rows } = await db.query(
      inSchema(schema, 'select deleted, is_idle from longshore.forget_lanes($1, $2)'),
      [name, secret],
    )
    const piece = rows[0] as Piece | undefined
    deleted += piece?.deleted ?? 0
    if (!piece || piece.is_idle) break
  }
  if (deleted > 0) logger.info({ lanes: deleted }, 'lanes that were not used any more are deleted')
}
