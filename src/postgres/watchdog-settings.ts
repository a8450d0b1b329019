/** When the watchdog takes a group for stuck, and what it does then: one setting for the deployment. */
import { type Duration, toMs } from '../job/duration.ts'
import { LongshoreError } from '../job/errors.ts'
import { shown } from '../job/shown.ts'
import { checkDeployment, type DeploymentOptions, withPool } from './once.ts'
import { inSchema } from './schema-name.ts'

export interface WatchdogSettings {
  /** How long a group that could move may stand still before it is reported. Default 10 minutes. */
  afterMs: number
  /** Whether it is cancelled then. Default false. */
  cancel: boolean
}

/** What is not given stays. */
export interface SetWatchdogOptions extends DeploymentOptions {
  /** How long a group that could move may stand still before it is reported: from 100 ms to a year. */
  after?: Duration
  /** Whether it is cancelled then. */
  cancel?: boolean
}

const LEAST_MS = 100
const MOST_MS = 31_536_000_000
const SETTINGS = 'watchdog_ms as after, watchdog_cancels as cancel'

export async function readWatchdog(options: DeploymentOptions): Promise<WatchdogSettings> {
  checkDeployment('readWatchdog', options)
  return withPool(options, async (pool, schema) => {
    const { rows } = await pool.query(inSchema(schema, `select ${SETTINGS} from longshore.settings`))
    return toSettings(rows)
  })
}

/** Returns what is set now; the process that does the upkeep follows within a minute. */
export async function setWatchdog(options: SetWatchdogOptions): Promise<WatchdogSettings> {
  checkDeployment('setWatchdog', options, ['after', 'cancel'])
  const { after, cancel } = options
  const afterMs = after === undefined ? null : toMs(after, 'after')
  if (afterMs !== null && (afterMs < LEAST_MS || afterMs > MOST_MS)) {
    throw new LongshoreError(
      'CONFIG_INVALID',
      `after must be between ${LEAST_MS} ms and a year; got ${shown(after)}`,
    )
  }
  if (cancel !== undefined && typeof cancel !== 'boolean')
    throw new LongshoreError('CONFIG_INVALID', `cancel must be true or false; got ${shown(cancel)}`)
  return withPool(options, async (pool, schema) => {
    const { rows } = await pool.query(
      inSchema(
        schema,
        `update longshore.settings
         set watchdog_ms = coalesce($1, watchdog_ms), watchdog_cancels = coalesce($2, watchdog_cancels)
         returning ${SETTINGS}`,
      ),
      [afterMs, cancel ?? null],
    )
    return toSettings(rows)
  })
}

const toSettings = (rows: Record<string, unknown>[]): WatchdogSettings => ({
  afterMs: Number(rows[0]?.['after']),
  cancel: rows[0]?.['cancel'] as boolean,
})
