/**
 * Owns the name of the schema that an installation lives in. SQL files are written for the schema `longshore`;
 * `inSchema` puts another name in its place, so that two installations can share a database.
 */

import { LongshoreError } from '../job/errors.ts'
import { quoted } from '../job/shown.ts'
import { DEFAULT_SCHEMA, SCHEMA_NAME, SCHEMA_RULE } from '../runtime/settings.ts'

export { DEFAULT_SCHEMA } from '../runtime/settings.ts'

export function checkSchemaName(schema: string): string {
  if (typeof schema !== 'string' || !SCHEMA_NAME.test(schema)) {
    throw new LongshoreError('CONFIG_INVALID', `schema ${quoted(schema)} ${SCHEMA_RULE}`)
  }
  return schema
}

/** What a command line needs so that it means this schema. */
export const schemaFlag = (schema: string): string => (schema === DEFAULT_SCHEMA ? '' : ` --schema ${schema}`)

/** SQL text written for `longshore.…`, made to speak of the given schema. */
export function inSchema(schema: string, sql: string): string {
  return sql.replaceAll(/\blongshore\./g, `"${schema}".`)
}

/** The notification channel that SQL text spells `longshore.<name>`. */
export function channelName(schema: string, name: string): string {
  return `"${schema}".${name}`
}
