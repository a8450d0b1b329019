/**
 * Owns the name of the schema that an installation lives in. SQL files are written for the schema `longshore`;
 * `inSchema` puts another name in its place, so that two installations can share a database.
 */
import { LongshoreError } from '../job/errors.ts'

export const DEFAULT_SCHEMA = 'longshore'

const VALID = /^[a-z_][a-z0-9_]{0,40}$/

export function checkSchemaName(schema: string): string {
  if (!VALID.test(schema)) {
    throw new LongshoreError(
      'CONFIG_INVALID',
      `schema ${JSON.stringify(schema)} is not a valid name: use at most 41 of a-z, 0-9 and _, not starting with a digit`,
    )
  }
  return schema
}

/** SQL text written for `longshore.…`, made to speak of the given schema. */
export function inSchema(schema: string, sql: string): string {
  return sql.replaceAll(/\blongshore\./g, `"${schema}".`)
}

/** The notification channel that SQL text spells `longshore.<name>`. */
export function channelName(schema: string, name: string): string {
  return `"${schema}".${name}`
}
