/** How the jobs of a queue are spread over workers, as far as it is set for the queue itself. */
import { checkOneOf, checkOptions, checkWhole } from '../job/check-options.ts'
import { checkLabel } from '../job/task.ts'
import { BALANCE_STRATEGIES, SCHEDULE_MODES } from '../runtime/settings.ts'
import { type DeploymentOptions, withPool } from './once.ts'
import { type QueueSettings, readQueues } from './relay-reads.ts'
import { inSchema } from './schema-name.ts'

export type { QueueSettings }

/** Every queue that has lanes, workers or settings. */
export function readQueueSettings(options: DeploymentOptions): Promise<(QueueSettings & { name: string })[]> {
  return withPool(options, async (pool, schema) => {
    const queues = await readQueues(pool, schema)
    return [...queues]
      .map(([name, { mode, strategy, width }]) => ({ name, mode, strategy, width }))
      .sort((a, b) => (a.name < b.name ? -1 : 1))
  })
}

/** What is not given stays; null: the relay's own settings hold. A leading relay follows within a second. */
export async function setQueue(
  queue: string,
  change: Partial<QueueSettings>,
  options: DeploymentOptions,
): Promise<void> {
  const name = checkLabel('queue', queue, undefined, 'CONFIG_INVALID')
  checkOptions('CONFIG_INVALID', 'setQueue', change, ['mode', 'strategy', 'width'])
  const { mode, strategy, width } = change
  if (isGiven(mode)) checkOneOf('CONFIG_INVALID', 'mode', mode, SCHEDULE_MODES)
  if (isGiven(strategy)) checkOneOf('CONFIG_INVALID', 'strategy', strategy, BALANCE_STRATEGIES)
  if (isGiven(width)) checkWhole('CONFIG_INVALID', 'width', width, 1, 1000)
  await withPool(options, async (pool, schema) => {
    await pool.query(
      inSchema(
        schema,
        `insert into longshore.queues (name, mode, strategy, width) values ($1, $2, $3, $4)
         on conflict (name) do update set
           mode = case when $5 then excluded.mode else queues.mode end,
           strategy = case when $6 then excluded.strategy else queues.strategy end,
           width = case when $7 then excluded.width else queues.width end`,
      ),
      [
        name,
        mode ?? null,
        strategy ?? null,
        width ?? null,
        mode !== undefined,
        strategy !== undefined,
        width !== undefined,
      ],
    )
  })
}

const isGiven = (value: unknown) => value !== undefined && value !== null
