/** How the jobs of a queue are spread over workers, as far as it is set for the queue itself. */
import { checkOneOf, checkWhole } from '../job/check-options.ts'
import { checkLabel } from '../job/task.ts'
import { BALANCE_STRATEGIES, SCHEDULE_MODES } from '../runtime/settings.ts'
import { checkDeployment, type DeploymentOptions, withPool } from './once.ts'
import { type QueueSettings, readQueueSettings } from './relay-reads.ts'
import { inSchema } from './schema-name.ts'

export interface Queue extends QueueSettings {
  name: string
}

/** What is not given stays; null: the relay's own setting holds. */
export interface SetQueueOptions extends DeploymentOptions, Partial<QueueSettings> {
  /** The queue. */
  name: string
}

/** Every queue that has lanes, workers or settings, by name. */
export async function readQueues(options: DeploymentOptions): Promise<Queue[]> {
  checkDeployment('readQueues', options)
  return withPool(options, async (pool, schema) =>
    [...(await readQueueSettings(pool, schema))]
      .map(([name, settings]) => ({ name, ...settings }))
      .sort((a, b) => (a.name < b.name ? -1 : 1)),
  )
}

/** Returns what is set now. A leading relay follows within a second. */
export async function setQueue(options: SetQueueOptions): Promise<Queue> {
  checkDeployment('setQueue', options, ['name', 'scheduleMode', 'balanceStrategy', 'fanoutWidth'])
  const { scheduleMode, balanceStrategy, fanoutWidth } = options
  const name = checkLabel('name', options.name, undefined, 'CONFIG_INVALID')
  if (isGiven(scheduleMode)) checkOneOf('CONFIG_INVALID', 'scheduleMode', scheduleMode, SCHEDULE_MODES)
  if (isGiven(balanceStrategy))
    checkOneOf('CONFIG_INVALID', 'balanceStrategy', balanceStrategy, BALANCE_STRATEGIES)
  if (isGiven(fanoutWidth)) checkWhole('CONFIG_INVALID', 'fanoutWidth', fanoutWidth, 0, 1000)
  return withPool(options, async (pool, schema) => {
    const { rows } = await pool.query(
      inSchema(
        schema,
        `insert into longshore.queues as q (name, schedule_mode, balance_strategy, fanout_width) values ($1, $2, $3, $4)
         on conflict (name) do update set
           schedule_mode = case when $5 then excluded.schedule_mode else q.schedule_mode end,
           balance_strategy = case when $6 then excluded.balance_strategy else q.balance_strategy end,
           fanout_width = case when $7 then excluded.fanout_width else q.fanout_width end
         returning name, schedule_mode as "scheduleMode", balance_strategy as "balanceStrategy", fanout_width as "fanoutWidth"`,
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
    return rows[0] as unknown as Queue
  })
}

const isGiven = (value: unknown) => value !== undefined && value !== null
