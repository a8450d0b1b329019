/**
 * The worker: claims jobs, runs them, settles them. Options are checked here; `worker-life.ts` is one life of it,
 * `succession.ts` what follows when one has died, `exchange-loop.ts` the traffic with Postgres, `runs.ts` what it runs, `run-job.ts` one run.
 */
import { hostname } from 'node:os'
import { checkList, checkOptions, checkWhole } from '../job/check-options.ts'
import { constraintTags } from '../job/constraints.ts'
import { type Duration, toMs, toTimerMs } from '../job/duration.ts'
import { LongshoreError } from '../job/errors.ts'
import { checkLabel, type Handler } from '../job/task.ts'
import { checkDatabase } from '../postgres/check-database.ts'
import { openPool } from '../postgres/connect.ts'
import { portableConfig } from '../postgres/heartbeat.ts'
import type { PostgresConfig } from '../postgres/postgres-config.ts'
import { registerTasks } from '../postgres/register-tasks.ts'
import type { WorkerFacts } from '../postgres/register-worker.ts'
import { readDeployment } from '../postgres/relay-reads.ts'
import { checkSchemaName, DEFAULT_SCHEMA } from '../postgres/schema-name.ts'
import { isTransientError } from '../postgres/transient-error.ts'
import { type RedisConfig, readRedisConfig } from '../redis/redis-config.ts'
import { readWorkerSettings, type WorkerSettings } from '../runtime/config.ts'
import { createLogger, type Logger, withSafeErrors } from '../runtime/logger.ts'
import { createMemoryGauge } from '../runtime/memory.ts'
import { withRetry } from '../runtime/retry.ts'
import { loadTracing } from '../runtime/tracing.ts'
import { Meter } from './meter.ts'
import { beginLives, type Lives } from './succession.ts'
import { beginLife } from './worker-life.ts'

export interface WorkerOptions extends Partial<WorkerSettings> {
  /** Where Postgres is: a connection string or `pg` settings. Default: `DATABASE_URL`. */
  postgres?: PostgresConfig
  /**
   * Where Redis is: a URL, or several of a cluster. Default: `REDIS_URL`. Used while a relay keeps it in step with Postgres; without
   * it, or while it is away, jobs come straight from Postgres.
   */
  redis?: RedisConfig
  /** Schema of the installation. Default `'longshore'`. */
  schema?: string
  /** What this worker can do: `[resize.handle(async job => …), …]`. */
  handlers: readonly Handler[]
  /** The tags it offers. Default: the tags of its tasks. */
  tags?: readonly string[]
  /** The queues it serves. Default: the queues of its tasks. */
  queues?: readonly string[]
  /** What it has, by declared property key: `{ gpu: 'a100', mem: 'high' }`. Default: nothing. */
  properties?: Readonly<Record<string, string>>
  /** Shown in logs and tables. Default: host name and process id. */
  name?: string
  /** How long a handler may take to return after its signal fired. Default `'5s'`. */
  abortGrace?: Duration
  /**
   * How long Postgres waits for a sign of life before it gives this worker's jobs to others, 100 ms to 1 h. A thread of
   * its own beats each third of it. Default `'15s'`.
   */
  lease?: Duration
  /** How long the event loop may be blocked before the beats stop, 100 ms to 1 d. Default `'5m'`. */
  stall?: Duration
  /** Largest result in bytes of JSON, at most 4 MiB. Default 256 KiB. */
  maxResultBytes?: number
  logger?: Logger
}

export interface StopOptions {
  /** How long running jobs may go on before their signals fire. Default `'30s'`. */
  deadline?: Duration
}

export interface Worker {
  /** Resolves when it claims jobs, to the id of its life: a worker that lost its lease begins another by itself. */
  start(): Promise<{ id: number }>
  /** Claims no more, lets running jobs end within the deadline, gives back what does not, and closes. */
  stop(options?: StopOptions): Promise<void>
  /**
   * It has these properties from now on, also after a later `start()`. Resolves when it claims no more jobs by what it
   * had before; those that it has claimed are run.
   */
  setProperties(properties: Readonly<Record<string, string>>): Promise<void>
  /** Where its jobs come from at this moment: through Redis, or straight from Postgres. */
  readonly path: 'redis' | 'direct'
}

/** Two exchanges under way, and one for what comes between. */
const CONNECTIONS = 3
const PAUSES = { firstMs: 100, maxMs: 1000, maxTries: 5 }
const MOST_RESULT_BYTES = 4 * 1024 * 1024
const MOST_HANDLERS = 10_000
const MOST_LABELS = 1000
const KNOWN = Object.keys({
  postgres: true,
  redis: true,
  schema: true,
  handlers: true,
  tags: true,
  queues: true,
  properties: true,
  name: true,
  maxConcurrentTasks: true,
  claimBatchSize: true,
  pollIntervalMs: true,
  memoryThreshold: true,
  latencyThresholdMs: true,
  abortGrace: true,
  lease: true,
  stall: true,
  maxResultBytes: true,
  logger: true,
} satisfies Record<keyof WorkerOptions, true>)

export function createWorker(options: WorkerOptions): Worker {
  checkOptions('CONFIG_INVALID', 'createWorker', options, KNOWN)
  const settings = readWorkerSettings(options)
  const schema = checkSchemaName(options.schema ?? DEFAULT_SCHEMA)
  const logger = options.logger ? withSafeErrors(options.logger) : createLogger('longshore')
  const postgres = options.postgres ?? process.env['DATABASE_URL'] ?? ''
  const redis = options.redis ?? process.env['REDIS_URL']
  if (redis) readRedisConfig(redis) // throws
  const handlers = byTask(options.handlers)
  const abortGraceMs = toTimerMs(options.abortGrace ?? '5s', 'abortGrace')
  const leaseMs = toMsWithin(options.lease ?? '15s', 'lease', 100, 3_600_000)
  const stallMs = toMsWithin(options.stall ?? '5m', 'stall', 100, 86_400_000)
  if (typeof postgres !== 'string') portableConfig(postgres) // throws
  const maxResultBytes = options.maxResultBytes ?? 256 * 1024
  checkWhole('CONFIG_INVALID', 'maxResultBytes', maxResultBytes, 1, MOST_RESULT_BYTES)
  const tasks = options.handlers.map(handler => handler.task)
  const facts: WorkerFacts = {
    name: checkLabel('name', options.name ?? `${hostname().slice(0, 150)}:${process.pid}`, 200),
    queues: labels('queue', options.queues) ?? distinct(tasks.map(task => task.queue)),
    tasks: [...handlers.keys()],
    tags: labels('tag', options.tags) ?? distinct(tasks.map(task => task.tag)),
    properties: { ...options.properties },
    constraintTags: constraintTags(options.properties),
    leaseMs,
  }

  const meter = new Meter()
  const memory = createMemoryGauge()

  const begin = async (): Promise<Lives> => {
    const pool = openPool(postgres, CONNECTIONS, error =>
      logger.warn({ err: error }, 'a connection to Postgres broke; it is replaced'),
    )
    try {
      await loadTracing()
      await withRetry(() => checkDatabase(pool, schema), { ...PAUSES, isTransient: isTransientError })
      const deployment = await withRetry(() => readDeployment(pool, schema), {
        ...PAUSES,
        isTransient: isTransientError,
      })
      await withRetry(() => registerTasks(pool, schema, tasks), { ...PAUSES, isTransient: isTransientError })
      return await beginLives({
        begin: earlier =>
          beginLife(
            {
              pool,
              postgres,
              redis: redis ? { config: redis, deployment } : undefined,
              schema,
              facts,
              settings,
              handlers,
              abortGraceMs,
              maxResultBytes,
              stallMs,
              meter,
              memory,
              logger,
            },
            earlier,
          ),
        onEnd: () => pool.end(),
        logger,
      })
    } catch (error) {
      await pool.end()
      throw error
    }
  }

  let life: Promise<Lives> | undefined
  let lives: Lives | undefined
  let lastChange: Promise<unknown> = Promise.resolve()

  const changeProperties = async (had: Pick<WorkerFacts, 'properties' | 'constraintTags'>) => {
    const { properties, constraintTags } = facts
    const running = await life?.catch(() => undefined)
    Object.assign(facts, had)
    try {
      await withRetry(async () => running?.setProperties(had), { ...PAUSES, isTransient: isTransientError })
    } catch (error) {
      Object.assign(facts, { properties, constraintTags })
      throw error
    }
  }

  return {
    async start() {
      life ??= begin().catch(error => {
        life = undefined
        throw error
      })
      lives = await life
      return { id: lives.workerId }
    },
    async stop(stop = {}) {
      checkOptions('CONFIG_INVALID', 'stop', stop, ['deadline'])
      const deadlineMs = toTimerMs(stop.deadline ?? '30s', 'deadline')
      const stopped = life
      const begun = await stopped?.catch(() => undefined) // a start that failed has nothing to stop
      await begun?.end(deadlineMs)
      if (life === stopped) life = undefined
    },
    get path() {
      return lives?.path ?? 'direct'
    },
    async setProperties(properties) {
      const had = { properties: { ...properties }, constraintTags: constraintTags(properties) }
      // One after another, so that the last call wins.
      const change = lastChange.then(() => changeProperties(had))
      lastChange = change.catch(() => undefined) // whoever asked is told
      await change
    },
  }
}

function byTask(handlers: readonly Handler[]): Map<string, Handler> {
  if (!Array.isArray(handlers) || handlers.length === 0) {
    throw new LongshoreError(
      'CONFIG_INVALID',
      'a worker needs at least one handler: pass `handlers: [task.handle(…)]`',
    )
  }
  checkList('CONFIG_INVALID', 'handlers', handlers, MOST_HANDLERS)
  const found = new Map<string, Handler>()
  for (const handler of handlers) {
    if (typeof handler?.run !== 'function') {
      throw new LongshoreError(
        'CONFIG_INVALID',
        'each of `handlers` must be made by task.handle(async job => { … })',
      )
    }
    if (found.has(handler.task.name)) {
      throw new LongshoreError('CONFIG_INVALID', `two handlers for task ${handler.task.name}: keep one`)
    }
    found.set(handler.task.name, handler)
  }
  return found
}

function toMsWithin(duration: Duration, what: string, least: number, most: number): number {
  const ms = toMs(duration, what)
  if (ms >= least && ms <= most) return ms
  throw new LongshoreError(
    'CONFIG_INVALID',
    `${what} must be between ${least} and ${most} ms; got ${duration}`,
  )
}

function labels(what: 'queue' | 'tag', given: readonly string[] | undefined): string[] | undefined {
  if (given === undefined) return undefined
  return distinct(
    checkList('CONFIG_INVALID', `${what}s`, given, MOST_LABELS).map(label => checkLabel(what, label)),
  )
}

const distinct = (texts: string[]) => [...new Set(texts)]
