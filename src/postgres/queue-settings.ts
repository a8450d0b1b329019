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
      .map(([name, { scheduleMode, balanceStrategy, fanoutWidth }]) => ({
        name,
        scheduleMode,
        balanceStrategy,
        fanoutWidth,
      }))
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
  checkOptions('CONFIG_INVALID', 'setQueue', change, ['scheduleMode', 'balanceStrategy', 'fanoutWidth'])
  const { scheduleMode, balanceStrategy, fanoutWidth } = change
  if (isGiven(scheduleMode)) checkOneOf('CONFIG_INVALID', 'scheduleMode', scheduleMode, SCHEDULE_MODES)
  if (isGiven(balanceStrategy))
    checkOneOf('CONFIG_INVALID', 'balanceStrategy', balanceStrategy, BALANCE_STRATEGIES)
  if (isGiven(fanoutWidth)) checkWhole('CONFIG_INVALID', 'fanoutWidth', fanoutWidth, 0, 1000)
  await withPool(options, async (pool, schema) => {
    await pool.query(
      inSchema(
        schema,
        `insert into longshore.queues as q (name, schedule_mode, balance_strategy, fanout_width) values ($1, $2, $3, $4)
         on conflict (name) do update set
           schedule_mode = case when $5 then excluded.schedule_mode else q.schedule_mode end,
           balance_strategy = case when $6 then excluded.balance_strategy else q.balance_strategy end,
           fanout_width = case when $7 then excluded.fanout_width else q.fanout_width end`,
      ),
      [
        name,
        scheduleMode ?? null,
        balanceStrategy ?? null,
        fanoutWidth ?? null,
        scheduleMode !== undefined,
        balanceStrategy !== undefined,
        fanoutWidth !== undefined,
      ],
    )
  })
}

const isGiven = (value: unknown) => value !== undefined && value !== null
