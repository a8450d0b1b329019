/** The keys of the properties that workers may have and jobs may ask for: one list for the deployment. */
import { checkPropertyKeys } from '../job/constraints.ts'
import { type DeploymentOptions, withPool } from './once.ts'
import { inSchema } from './schema-name.ts'

/** The declared keys. */
export function readPropertyKeys(options: DeploymentOptions): Promise<string[]> {
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
  options: DeploymentOptions,
): Promise<string[]> {
  const declared = checkPropertyKeys(keys)
  return withPool(options, async (pool, schema) => {
    await pool.query(inSchema(schema, 'update longshore.settings set property_keys = $1'), [declared])
    return declared
  })
}
