/**
 * The relay: the sidecar that keeps a deployment going. In direct dispatch it holds the upkeep lease, so that workers
 * need not: due jobs become ready, dead workers' jobs are rescued, the history gets its partitions. Several may run: one leads, the others stand by.
 */
import { hostname } from 'node:os'
import { checkDatabase } from '../postgres/check-database.ts'
import { openPool } from '../postgres/connect.ts'
import { openListener } from '../postgres/listener.ts'
import type { PostgresConfig } from '../postgres/postgres-config.ts'
import { channelName, checkSchemaName, DEFAULT_SCHEMA } from '../postgres/schema-name.ts'
import { createLogger, type Logger, withSafeErrors } from '../runtime/logger.ts'
import { startUpkeep, type Upkeep } from '../upkeep/start-upkeep.ts'

export interface RelayOptions {
  /** Where Postgres is: a connection string or `pg` settings. Default: `DATABASE_URL`. */
  postgres?: PostgresConfig
  /** Schema of the installation. Default `'longshore'`. */
  schema?: string
  logger?: Logger
}

export interface Relay {
  /** Resolves when it leads or stands by. */
  start(): Promise<void>
  stop(): Promise<void>
}

export function createRelay(options: RelayOptions = {}): Relay {
  const schema = checkSchemaName(options.schema ?? DEFAULT_SCHEMA)
  const logger = options.logger ? withSafeErrors(options.logger) : createLogger('longshore')
  const postgres = options.postgres ?? process.env['DATABASE_URL'] ?? ''

  const begin = async () => {
    const pool = openPool(postgres, 1, error =>
      logger.warn({ err: error }, 'a connection to Postgres broke; it is replaced'),
    )
    try {
      await checkDatabase(pool, schema)
      let upkeep: Upkeep | undefined
      const listener = await openListener({
        postgres,
        channels: [channelName(schema, 'due')],
        onNotify: () => upkeep?.onDue(),
        onGap: () => upkeep?.onDue(),
        onError: error => logger.warn({ err: error }, 'the listening connection broke; reconnecting'),
      })
      const holder = `relay ${hostname()}:${process.pid}:${Date.now().toString(36)}`
      upkeep = startUpkeep({ db: listener, pool, schema, holder, rank: 'relay', logger })
      const running = upkeep
      return async () => {
        await running.stop()
        await listener.close()
        await pool.end()
      }
    } catch (error) {
      await pool.end()
      throw error
    }
  }

  let life: Promise<() => Promise<void>> | undefined
  return {
    async start() {
      life ??= begin().catch(error => {
        life = undefined
        throw error
      })
      await life
    },
    async stop() {
      const end = await life?.catch(() => undefined) // a start that failed has nothing to stop
      life = undefined
      await end?.()
    },
  }
}
