/** The keys of the properties that workers may have and jobs may ask for: one list for the deployment. */
import { checkPropertyKeys } from '../job/constraints.ts'
import { checkDeployment, type DeploymentOptions, withPool } from './once.ts'
import { inSchema } from './schema-name.ts'

export interface SetPropertyKeysOptions extends DeploymentOptions {
  /** At most 3. */
  keys: readonly string[]
}

/** The declared keys. */
export async function readPropertyKeys(options: DeploymentOptions): Promise<string[]> {
  checkDeployment('readPropertyKeys', options)
  return withPool(options, async (pool, schema) => {
    const { rows } = await pool.query(inSchema(schema, 'select property_keys from longshore.settings'))
    return rows[0]?.['property_keys'] as string[]
  })
}

/**
 * Replaces the declared keys and returns them. Jobs and workers that name one which is no longer declared stay as they are; new ones
 * are refused.
 */
export async function setPropertyKeys(options: SetPropertyKeysOptions): Promise<string[]> {
  checkDeployment('setPropertyKeys', options, ['keys'])
  const keys = checkPropertyKeys(options.keys)
  return withPool(options, async (pool, schema) => {
    await pool.query(inSchema(schema, 'update longshore.settings set property_keys = $1'), [keys])
    return keys
  })
}
