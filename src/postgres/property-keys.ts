/** The keys of the properties that workers may have and jobs may ask for: one list for the deployment. */
import { checkPropertyKeys } from '../job/constraints.ts'
import { checkDatabase } from './check-database.ts'
import { openPool, type Pool } from './connect.ts'
import type { PostgresConfig } from './postgres-config.ts'
import { checkSchemaName, DEFAULT_SCHEMA, inSchema } from './schema-name.ts'

export interface PropertyKeysOptions {
  /** Where Postgres is: a connection string or `pg` settings. */
  postgres: PostgresConfig
  /** Schema of the installation. Default `'longshore'`. */
  schema?: string
}

/** The declared keys. */
export function readPropertyKeys(options: PropertyKeysOptions): Promise<string[]> {
  return withPool(options, async (pool, schema) => {
    const { rows } = await pool.query(inSchema(schema, 'select property_keys from longshore.settings'))
    return rows[0]?.['property_keys'] as string[]
  })
}

/**
 * Declare the keys, at most 3, in place of those that were. Jobs and workers that name one which is no longer declared
 * stay as they are; new ones are refused.
 */
export async function declarePropertyKeys(
  keys: readonly string[],
  options: PropertyKeysOptions,
): Promise<string[]> {
  const declared = checkPropertyKeys(keys)
  return withPool(options, async (pool, schema) => {
    await pool.query(inSchema(schema, 'update longshore.settings set property_keys = $1'), [declared])
    return declared
  })
}

async function withPool<T>(
  { postgres, schema: given = DEFAULT_SCHEMA }: PropertyKeysOptions,
  work: (pool: Pool, schema: string) => Promise<T>,
): Promise<T> {
  const schema = checkSchemaName(given)
  const pool = openPool(postgres, 1, () => undefined) // the statement under way is told
  try {
    await checkDatabase(pool, schema)
    return await work(pool, schema)
  } finally {
    await pool.end()
  }
}
