/** Owns what a worker is told when it is made: every option, what it means where it is left out, and what is refused. */
import { availableParallelism, hostname } from 'node:os'
import { checkList, checkObject } from '../job/check-options.ts'
import { constraintTags } from '../job/constraints.ts'
import type { Duration } from '../job/duration.ts'
import { LongshoreError } from '../job/errors.ts'
import { checkTask, type Handler, type Task } from '../job/task.ts'
import { portableConfig } from '../postgres/heartbeat.ts'
import type { PostgresConfig } from '../postgres/postgres-config.ts'
import type { WorkerFacts } from '../postgres/register-worker.ts'
import { type RedisConfig, readRedisConfig } from '../redis/redis-config.ts'
import { readOptions, type WorkerSettings } from '../runtime/config.ts'
import { createLogger, type Logger, withSafeErrors } from '../runtime/logger.ts'
import { checkAll } from '../runtime/problems.ts'

/** What is not given comes from the environment, as the table of settings in the guide says. */
export interface WorkerOptions {
  /** Where Postgres is: a connection string or `pg` settings. Default: `DATABASE_URL`. */
  postgres?: PostgresConfig
  /** Where to listen for notifications, if `postgres` leads to a pooler in transaction mode. Default: `DATABASE_LISTEN_URL`, else `postgres`. */
  listen?: PostgresConfig
  /**
   * Where Redis is: a URL, or several of a cluster. Default: `REDIS_URL`. Used while a relay keeps it in step with Postgres; without
   * it, or while it is away, jobs come directly from Postgres.
   */
  redis?: RedisConfig
  /** Schema of the installation. Default `'longshore'`. */
  schema?: string
  /** What this worker can do: `[resize.handle(async job => …), …]`. */
  handlers: readonly Handler[]
  /** The tags it has. Default: the tags of its tasks. */
  tags?: readonly string[]
  /** The queues it serves. Default: the queues of its tasks. */
  queues?: readonly string[]
  /** What it has, by declared property key: `{ gpu: 'a100', mem: 'high' }`. Default: nothing. */
  properties?: Readonly<Record<string, string>>
  /** Shown in logs and tables. Default: host name and process id. */
  name?: string
  /** Jobs that run at once in one worker. Default 1000. */
  maxConcurrentTasks?: number
  /** Jobs in one claim; under a backlog it grows within the free permits. Default 50. */
  claimBatchSize?: number
  /** How often an idle worker looks by itself; a wake-up ends the wait. From 1 ms to 1 h, default `'100ms'`. */
  pollInterval?: Duration
  /** Threads for tasks with `isolate: 'thread'`; each runs one job at a time. Default: as many as there are processors. */
  maxThreads?: number
  /** Claims are halved while more than this share of the memory is used: of the heap, or of the control group or machine. Default 0.8. */
  memoryThreshold?: number
  /** Claims shrink to 70 % while the p99 of handlers' durations is above this; without it they do not. From 1 ms to 1 d. */
  latencyThreshold?: Duration
  /**
   * Transactions of `ctx.complete` at once; more wait. Each has a connection of its own while it is open, beside the three that a worker has;
   * connections that are not used are closed after a second. From 1 to 100, default 5.
   */
  maxCompletions?: number
  /** How long a handler may take to return after its signal fired. Default `'5s'`. */
  abortGrace?: Duration
  /**
   * How long a job that must run alone (its workers died twice) waits for the other handlers of this worker to return. Then it is given
   * back, and this worker goes on. Default `'30s'`.
   */
  aloneDeadline?: Duration
  /**
   * How long Postgres waits for a sign of life before it gives this worker's jobs to others, 100 ms to 1 h. A thread of
   * its own beats each third of it. Default `'15s'`.
   */
  lease?: Duration
  /** How long the event loop may be blocked before the beats stop, 100 ms to 1 d. Default `'5m'`. */
  stall?: Duration
  /** Largest heap of a thread in MB, for tasks with `isolate: 'thread'`: a job that needs more fails. Default: none of its own. */
  threadMemoryMb?: number
  /** Largest result in bytes of JSON, at most 4 MiB. Default 256 KiB. */
  maxResultBytes?: number
  /** Lines that one run may log, 1 to 100,000. What is beyond is dropped, and the last line tells how many. Default 1000. */
  maxLogLines?: number
  /** In front of the names of its metrics. Default `'longshore_'`. */
  metricsPrefix?: string
  logger?: Logger
}

/** The options, checked and with everything that was left out. */
export interface WorkerPlan {
  readonly postgres: PostgresConfig
  readonly listen: PostgresConfig
  readonly redis: RedisConfig | undefined
  readonly schema: string
  readonly tasks: readonly Task[]
  readonly handlers: ReadonlyMap<string, Handler>
  /** Its properties may change while it runs. */
  readonly facts: WorkerFacts
  readonly loop: WorkerSettings
  readonly maxThreads: number
  readonly threadMemoryMb: number | undefined
  readonly maxCompletions: number
  readonly abortGraceMs: number
  readonly aloneDeadlineMs: number
  readonly stallMs: number
  readonly maxResultBytes: number
  readonly maxLogLines: number
  readonly metricsPrefix: string
  readonly logger: Logger
}

const MOST_HANDLERS = 10_000
const KNOWN = Object.keys({
  postgres: true,
  listen: true,
  redis: true,
  schema: true,
  handlers: true,
  tags: true,
  queues: true,
  properties: true,
  name: true,
  maxConcurrentTasks: true,
  claimBatchSize: true,
  pollInterval: true,
  maxThreads: true,
  threadMemoryMb: true,
  memoryThreshold: true,
  latencyThreshold: true,
  maxCompletions: true,
  abortGrace: true,
  aloneDeadline: true,
  lease: true,
  stall: true,
  maxResultBytes: true,
  maxLogLines: true,
  metricsPrefix: true,
  logger: true,
} satisfies Record<keyof WorkerOptions, true>)

export function readWorkerOptions(options: WorkerOptions): WorkerPlan {
  checkObject('CONFIG_INVALID', 'createWorker', options)
  const [settings, handlers, given] = checkAll(
    () => readOptions('worker', 'createWorker', options, KNOWN),
    () => byTask(options.handlers),
    () => (options.logger === undefined ? undefined : withSafeErrors(options.logger)),
    () => {
      const listen = options.listen ?? options.postgres
      return typeof listen !== 'string' && listen && portableConfig(listen)
    },
    () => options.redis && readRedisConfig(options.redis),
  )
  const postgres = options.postgres ?? settings.databaseUrl ?? ''
  const redis = options.redis ?? settings.redisUrl
  if (redis) readRedisConfig(redis)
  const { maxThreads = availableParallelism() } = settings
  // One that runs and one that follows for each thread: more would only be kept from other workers.
  if (options.handlers.every(handler => handler.module))
    settings.maxConcurrentTasks = Math.min(settings.maxConcurrentTasks, 2 * maxThreads)
  const loop: WorkerSettings = {
    maxConcurrentTasks: settings.maxConcurrentTasks,
    claimBatchSize: settings.claimBatchSize,
    pollIntervalMs: settings.pollInterval,
    memoryThreshold: settings.memoryThreshold,
    latencyThresholdMs: settings.latencyThreshold,
  }
  const tasks = options.handlers.map(handler => handler.task)
  const facts: WorkerFacts = {
    name: settings.name ?? `${hostname().slice(0, 150)}:${process.pid}`,
    queues: settings.queues ?? distinct(tasks.map(task => task.queue)),
    tasks: [...handlers.keys()],
    tags: settings.tags ?? distinct(tasks.map(task => task.tag)),
    properties: { ...settings.properties },
    constraintTags: constraintTags(settings.properties),
    leaseMs: settings.lease,
  }
  return {
    postgres,
    listen: options.listen ?? settings.listenUrl ?? postgres,
    redis,
    schema: settings.schema,
    tasks,
    handlers,
    facts,
    loop,
    maxThreads,
    threadMemoryMb: settings.threadMemoryMb,
    maxCompletions: settings.maxCompletions,
    abortGraceMs: settings.abortGrace,
    aloneDeadlineMs: settings.aloneDeadline,
    stallMs: settings.stall,
    maxResultBytes: settings.maxResultBytes,
    maxLogLines: settings.maxLogLines,
    metricsPrefix: settings.metricsPrefix,
    logger: given ?? createLogger('longshore', settings.logLevel),
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
    if (typeof handler?.run !== 'function' && typeof handler?.module !== 'string') {
      throw new LongshoreError(
        'CONFIG_INVALID',
        'each of `handlers` must be made by task.handle(async job => { … })',
      )
    }
    checkTask(handler.task, 'the task of a handler')
    if (found.has(handler.task.name)) {
      throw new LongshoreError('CONFIG_INVALID', `two handlers for task ${handler.task.name}: keep one`)
    }
    found.set(handler.task.name, handler)
  }
  return found
}

const distinct = (texts: string[]) => [...new Set(texts)]
