/** Whether Postgres can be used at this moment: answers, has the schema, and may be written to. */
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from './schema-name.ts'

export async function probePostgres(db: Queryable, schema: string): Promise<void> {
  const { rows } = await db.query(
    inSchema(
      schema,
      `select current_setting('transaction_read_only') = 'on' as "isReadOnly" from longshore.settings`,
    ),
  )
  if (rows[0]?.['isReadOnly'] !== false) {
    throw new Error('it may only be read: a standby, or set so. Lead the connection string to the primary')
  }
}
