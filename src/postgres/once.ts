/** A look at, or a change of, what holds for a whole deployment: a connection for one call. */
import { checkOptions } from '../job/check-options.ts'
import { checkDatabase } from './check-database.ts'
import { openPool, type Pool } from './connect.ts'
import type { PostgresConfig } from './postgres-config.ts'
import { checkSchemaName, DEFAULT_SCHEMA } from './schema-name.ts'
import { explainUnavailable } from './unavailable.ts'

/** Every administrative function takes one object: where the deployment is, and what is asked of it. */
export interface DeploymentOptions {
  /** Where Postgres is: a connection string or `pg` settings. */
  postgres: PostgresConfig
  /** Schema of the installation. Default `'longshore'`. */
  schema?: string
}

/** Refuses options that the function `what` does not know. */
export function checkDeployment(what: string, options: unknown, known: readonly string[] = []): void {
  checkOptions('CONFIG_INVALID', what, options, ['postgres', 'schema', ...known])
}

export async function withPool<T>(
  options: DeploymentOptions,
  work: (pool: Pool, schema: string) => Promise<T>,
): Promise<T> {
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
