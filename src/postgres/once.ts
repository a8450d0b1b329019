/** A look at, or a change of, what holds for a whole deployment: a connection for one call. */
import { checkObject } from '../job/check-options.ts'
import { checkDatabase } from './check-database.ts'
import { openPool, type Pool } from './connect.ts'
import type { PostgresConfig } from './postgres-config.ts'
import { checkSchemaName, DEFAULT_SCHEMA } from './schema-name.ts'
import { explainUnavailable } from './unavailable.ts'

export interface DeploymentOptions {
  /** Where Postgres is: a connection string or `pg` settings. */
  postgres: PostgresConfig
  /** Schema of the installation. Default `'longshore'`. */
  schema?: string
}

export async function withPool<T>(
  options: DeploymentOptions,
  work: (pool: Pool, schema: string) => Promise<T>,
): Promise<T> {
  checkObject('CONFIG_INVALID', 'where Postgres is', options)
  const { postgres, schema: given = DEFAULT_SCHEMA } = options
  const schema = checkSchemaName(given)
  const pool = openPool(postgres, 1, () => undefined) // the statement under way is told
  try {
    await checkDatabase(pool, schema)
    return await work(pool, schema).catch(explainUnavailable)
  } finally {
    await pool.end()
  }
}
