/** Owns the options of a producer: checked once, with their defaults. */
import { checkOptions, checkWhole } from '../job/check-options.ts'
import { type Duration, toTimerMs } from '../job/duration.ts'
import { LongshoreError } from '../job/errors.ts'
import { shown } from '../job/shown.ts'
import { checkTask, type Task } from '../job/task.ts'
import type { PostgresConfig } from '../postgres/postgres-config.ts'
import { checkSchemaName, DEFAULT_SCHEMA } from '../postgres/schema-name.ts'
import { type RedisConfig, readRedisConfig } from '../redis/redis-config.ts'
import { createLogger, type Logger, withSafeErrors } from '../runtime/logger.ts'

export interface ProducerOptions {
  /** Where Postgres is: a connection string or `pg` settings. Default: `DATABASE_URL`. */
  postgres?: PostgresConfig
  /** Where to listen for notifications, if `postgres` leads to a pooler in transaction mode. Default: `DATABASE_LISTEN_URL`, else `postgres`. */
  listen?: PostgresConfig
  /**
   * Where Redis is. Only a hint: the relay hears there of jobs right after their commit, ahead of its look at Postgres. Default: none,
   * not even `REDIS_URL`; a producer needs Postgres only.
   */
  redis?: RedisConfig
  /** Schema of the installation. Default `'longshore'`. */
  schema?: string
  /** Tasks to make known at the start, so that plain SQL enqueues take their defaults from them. */
  tasks?: readonly Task[]
  /** Connections to Postgres at most. Default 10. */
  connections?: number
  /** Largest payload in bytes of JSON, at most 4 MiB. Default 256 KiB. */
  maxPayloadBytes?: number
  /**
   * How long a call is tried again while Postgres is away, because it restarts or fails over; then the call rejects with
   * `STORE_UNAVAILABLE`. 0: one try. Not inside a transaction of yours. Default `'10s'`.
   */
  patience?: Duration
  logger?: Logger
}

/** The same, checked. */
export interface ProducerSettings {
  postgres: PostgresConfig
  listen: PostgresConfig
  redis: RedisConfig | undefined
  schema: string
  tasks: readonly Task[]
  connections: number
  maxPayloadBytes: number
  patienceMs: number
  logger: Logger
}

const KNOWN = Object.keys({
  postgres: true,
  listen: true,
  redis: true,
  schema: true,
  tasks: true,
  connections: true,
  maxPayloadBytes: true,
  patience: true,
  logger: true,
} satisfies Record<keyof ProducerOptions, true>)

const MOST_CONNECTIONS = 1000
const MOST_PAYLOAD_BYTES = 4 * 1024 * 1024

export function readProducerOptions(options: ProducerOptions): ProducerSettings {
  checkOptions('CONFIG_INVALID', 'createProducer', options, KNOWN)
  const { tasks = [], redis, connections = 10, maxPayloadBytes = 256 * 1024, patience = '10s' } = options
  checkTasks(tasks)
  if (redis) readRedisConfig(redis)
  checkWhole('CONFIG_INVALID', 'connections', connections, 1, MOST_CONNECTIONS)
  checkWhole('CONFIG_INVALID', 'maxPayloadBytes', maxPayloadBytes, 1, MOST_PAYLOAD_BYTES)
  const postgres = options.postgres ?? process.env['DATABASE_URL'] ?? ''
  return {
    postgres,
    listen: options.listen ?? (process.env['DATABASE_LISTEN_URL'] || postgres),
    redis,
    schema: checkSchemaName(options.schema ?? DEFAULT_SCHEMA),
    tasks,
    connections,
    maxPayloadBytes,
    patienceMs: toTimerMs(patience, 'patience'),
    logger: options.logger ? withSafeErrors(options.logger) : createLogger('longshore'),
  }
}

function checkTasks(tasks: unknown): void {
  if (!Array.isArray(tasks)) {
    throw new LongshoreError(
      'CONFIG_INVALID',
      `tasks must be a list of tasks made by defineTask({ … }); got ${shown(tasks)}`,
    )
  }
  for (const task of tasks) checkTask(task, 'each of `tasks`')
}
