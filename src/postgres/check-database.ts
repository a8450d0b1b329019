/** Owns the check at every start: does this database fit this code? */
import { LongshoreError } from '../job/errors.ts'
import type { Queryable } from '../job/queryable.ts'
import { stepsLeft } from './migrate.ts'
import { DEFAULT_SCHEMA } from './schema-name.ts'
import { checkServerVersion, explainUnreachable } from './server-version.ts'

/** Refuses a server that is too old and a schema that is missing, outdated or newer, naming the command to run. */
export async function checkDatabase(client: Queryable, schema: string): Promise<void> {
  await checkServerVersion(client).catch(explainUnreachable)
  const left = await stepsLeft(client, schema)
  const flag = schema === DEFAULT_SCHEMA ? '' : ` --schema ${schema}`
  if (left.isMissing) {
    throw new LongshoreError(
      'SCHEMA_MISSING',
      `schema "${schema}" is not installed in this database: run \`longshore migrate${flag}\``,
    )
  }
  if (left.migrations.length > 0 || left.functions.length > 0) {
    throw new LongshoreError(
      'SCHEMA_OUTDATED',
      `schema "${schema}" does not fit this version of longshore (${left.migrations.length} migrations and ` +
        `${left.functions.length} functions to apply): run \`longshore migrate${flag}\``,
    )
  }
}
