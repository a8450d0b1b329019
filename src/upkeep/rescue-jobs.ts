/** The duty of rescue: takes back what dead workers ran, see `rescue.sql`. */
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from '../postgres/schema-name.ts'
import type { Holder } from '../postgres/secret.ts'
import type { Logger } from '../runtime/logger.ts'

/** Jobs in one transaction. */
const BATCH = 1000

/** `leadingMs`: how long this process has led without a gap; workers with a longer lease are not declared dead. */
export async function rescueJobs(
  db: Queryable,
  schema: string,
  holder: Holder,
  leadingMs: number,
  logger: Logger,
): Promise<void> {
  for (let taken = BATCH; taken === BATCH; ) {
    const { rows } = await db.query(inSchema(schema, 'select * from longshore.rescue($1, $2, $3, $4)'), [
      Math.floor(leadingMs),
      BATCH,
      holder.name,
      holder.secret,
    ])
    taken = 0
    for (const row of rows) {
      const { worker_id: worker, name, rescued, ended } = row as Record<string, number>
      taken += (rescued ?? 0) + (ended ?? 0)
      logger.warn(
        { worker, name, rescued, ended },
        'a worker stopped beating and is taken for dead; its jobs run again elsewhere',
      )
    }
  }
}
