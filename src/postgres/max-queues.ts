/** How many queues there may be: one setting for the deployment. */
import { checkWhole } from '../job/check-options.ts'
import { checkDeployment, type DeploymentOptions, withPool } from './once.ts'
import { inSchema } from './schema-name.ts'

export interface SetMaxQueuesOptions extends DeploymentOptions {
  /** From 1 to 1,000,000. */
  maxQueues: number
}

const MOST = 1_000_000

/** How many queues there may be. Default 1,000. */
export async function readMaxQueues(options: DeploymentOptions): Promise<number> {
  checkDeployment('readMaxQueues', options)
  return withPool(options, async (pool, schema) => {
    const { rows } = await pool.query(inSchema(schema, 'select max_queues from longshore.settings'))
    return rows[0]?.['max_queues'] as number
  })
}

/** Returns what is set now. Queues that there are stay, also where they are more than that; only new ones are refused. */
export async function setMaxQueues(options: SetMaxQueuesOptions): Promise<number> {
  checkDeployment('setMaxQueues', options, ['maxQueues'])
  const { maxQueues } = options
  checkWhole('CONFIG_INVALID', 'maxQueues', maxQueues, 1, MOST)
  return withPool(options, async (pool, schema) => {
    await pool.query(inSchema(schema, 'update longshore.settings set max_queues = $1'), [maxQueues])
    return maxQueues
  })
}
