/** Owns the check at every start: does this database fit this code? */
import { LongshoreError } from '../job/errors.ts'
import type { Queryable } from '../job/queryable.ts'
import { denyFunction, explainDenied } from './denied.ts'
import { schemaFlag } from './schema-name.ts'
import { checkServerVersion } from './server-version.ts'
import { checkSession } from './session.ts'
import { stepsLeft } from './steps-left.ts'
import { explainUnavailable } from './unavailable.ts'

/**
 * Refuses a server that is too old or set so that longshore cannot work, and a schema that is missing, outdated or newer,
 * naming the setting or the command to run. `verb`: a function that the process needs; a user that may not call it is
 * refused here, and not by each call later on.
 */
export async function checkDatabase(client: Queryable, schema: string, verb?: string): Promise<void> {
  await checkServerVersion(client).catch(explainUnavailable)
  await checkSession(client, { writes: verb !== undefined })
  // A user that may not even look has none of the roles.
  const left = await stepsLeft(client, schema).catch(error => explainDenied(error, `"${schema}".migrations`))
  const flag = schemaFlag(schema)
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
  if (verb !== undefined) await checkPrivilege(client, schema, verb)
}

async function checkPrivilege(client: Queryable, schema: string, verb: string): Promise<void> {
  const { rows } = await client.query(
    `select has_function_privilege(p.oid, 'execute') as may from pg_proc p
     join pg_namespace n on n.oid = p.pronamespace where n.nspname = $1 and p.proname = $2`,
    [schema, verb],
  )
  if (rows[0]?.['may'] === false) denyFunction(schema, verb)
}
