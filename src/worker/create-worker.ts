/**
 * The worker: claims jobs, runs them, settles them. Options are checked here; `worker-life.ts` is one life of it,
 * `worker-restart.ts` what follows when one has died, `exchange-loop.ts` the traffic with Postgres, `runs.ts` what it runs, `run-job.ts` one run.
 */
import { availableParallelism, hostname } from 'node:os'
import { checkList, checkObject, checkOptions } from '../job/check-options.ts'
import { constraintTags } from '../job/constraints.ts'
import { type Duration, toTimerMs } from '../job/duration.ts'
import { LongshoreError } from '../job/errors.ts'
import type { LogCounts } from '../job/job-log.ts'
import { checkTask, type Handler } from '../job/task.ts'
import { checkDatabase } from '../postgres/check-database.ts'
import { openPool } from '../postgres/connect.ts'
import { portableConfig } from '../postgres/heartbeat.ts'
import { createLockWatch } from '../postgres/held-locks.ts'
import type { PostgresConfig } from '../postgres/postgres-config.ts'
import { probePostgres } from '../postgres/probe.ts'
import { registerTasks } from '../postgres/register-tasks.ts'
import type { WorkerFacts } from '../postgres/register-worker.ts'
import { readDeployment } from '../postgres/relay-reads.ts'
import { patient } from '../postgres/unavailable.ts'
import { writeLogs } from '../postgres/write-logs.ts'
import { type RedisConfig, readRedisConfig } from '../redis/redis-config.ts'
import { readOptions, type WorkerSettings } from '../runtime/config.ts'
import { createProbe, refuseHeld, shownLocks } from '../runtime/health.ts'
import { createLogger, type Logger, withSafeErrors } from '../runtime/logger.ts'
import { createMemoryGauge } from '../runtime/memory.ts'
import { withOutages } from '../runtime/outage.ts'
import { checkAll } from '../runtime/problems.ts'
import type { Exposition, Metrics } from '../runtime/prometheus.ts'
import { loadTracing } from '../runtime/tracing.ts'
import { createJobLogs, noLogCounts } from './job-logs.ts'
import { Meter } from './meter.ts'
import { createOutages } from './outages.ts'
import { createThreadPool, type ThreadPool } from './thread-pool.ts'
import { notReady, readHealth, type StoreProbes, type WorkerHealth } from './worker-health.ts'
import { beginLife } from './worker-life.ts'
import { beginLives, type Lives } from './worker-restart.ts'

/** What is not given comes from the environment, as the table of settings in the guide says. */
export interface WorkerOptions {
  /** Where Postgres is: a connection string or `pg` settings. Default: `DATABASE_URL`. */
  postgres?: PostgresConfig
  /** Where to listen for notifications, if `postgres` leads to a pooler in transaction mode. Default: `DATABASE_LISTEN_URL`, else `postgres`. */
  listen?: PostgresConfig
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
  /** How long a handler may take to return after its signal fired. Default `'5s'`. */
  abortGrace?: Duration
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

export interface StopOptions {
  /** How long running jobs may go on before their signals fire. Default `'30s'`. */
  deadline?: Duration
}

/** What a worker told Postgres about itself. */
type Serves = Readonly<Pick<WorkerFacts, 'name' | 'tasks' | 'queues' | 'tags' | 'properties'>>

export interface Worker {
  /** Resolves when it claims jobs, to the id of its life: a worker that lost its lease begins another by itself. */
  start(): Promise<{ id: number }>
  /** Claims no more, lets running jobs end within the deadline, gives back what does not, and closes. */
  stop(options?: StopOptions): Promise<void>
  /**
   * It claims nothing from now on, until `resume()` or a stop; what runs goes on. Resolves when the last claim has been
   * answered. `longshore drain` does the same from outside.
   */
  drain(): Promise<void>
  /** It claims again. */
  resume(): Promise<void>
  readonly isDrained: boolean
  /**
   * It has these properties from now on, also after a later `start()`. Resolves when it claims no more jobs by what it
   * had before; those that it has claimed are run.
   */
  setProperties(properties: Readonly<Record<string, string>>): Promise<void>
  /** Where its jobs come from at this moment: through Redis, or straight from Postgres. */
  readonly path: 'redis' | 'direct'
  /** Which jobs it claims: those of these tasks, queues and tags that ask for no other properties. */
  readonly serves: Serves
  /** What became of the lines that its handlers have logged. */
  readonly logCounts: LogCounts
  /** Its metrics for Prometheus, as `longshore worker --metrics-port` serves them at `/metrics`. */
  prometheus(): Promise<Exposition>
  /** Whether it can do its work, as served at `/readyz`: asks the stores, each for at most two seconds. */
  health(): Promise<WorkerHealth>
}

/** Two exchanges under way, and one for what comes between. */
const CONNECTIONS = 3
const PAUSES = { firstMs: 100, maxMs: 1000 }
const patiently = patient({ ...PAUSES, maxTries: 5 })
/** A changed limit waits for whoever holds its slots: a process that is paused in the middle of a completion does for ten seconds. */
const registerPatiently = patient({ ...PAUSES, maxTries: 20 })
/** Making a thread costs 40 ms, keeping one 9 MB. */
const THREAD_IDLE_MS = 30_000
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
  abortGrace: true,
  lease: true,
  stall: true,
  maxResultBytes: true,
  maxLogLines: true,
  metricsPrefix: true,
  logger: true,
} satisfies Record<keyof WorkerOptions, true>)

export function createWorker(options: WorkerOptions): Worker {
  checkObject('CONFIG_INVALID', 'createWorker', options)
  const [settings, handlers, given] = checkAll(
    () => readOptions('worker', 'createWorker', options, KNOWN),
    () => byTask(options.handlers),
    () => (options.logger === undefined ? undefined : withSafeErrors(options.logger)),
    () => typeof options.postgres !== 'string' && options.postgres && portableConfig(options.postgres),
    () => options.redis && readRedisConfig(options.redis),
  )
  const { schema, abortGrace: abortGraceMs, stall: stallMs, maxResultBytes } = settings
  const told = given ?? createLogger('longshore', settings.logLevel)
  const outages = createOutages(told)
  const logger = withOutages(told, [outages.redis, outages.postgres])
  const postgres = options.postgres ?? settings.databaseUrl ?? ''
  const listen = options.listen ?? settings.listenUrl
  const redis = options.redis ?? settings.redisUrl
  if (redis) readRedisConfig(redis)
  const { threadMemoryMb, maxThreads = availableParallelism() } = settings
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
  const logCounts = noLogCounts()
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

  const meter = new Meter()
  const memory = createMemoryGauge()
  let threads: ThreadPool | undefined
  let probes: StoreProbes | undefined

  const begin = async (): Promise<Lives> => {
    const pooled = createThreadPool({
      maxThreads,
      memoryMb: threadMemoryMb,
      abortGraceMs,
      idleMs: THREAD_IDLE_MS,
      logger: told,
    })
    const pool = openPool(
      postgres,
      CONNECTIONS,
      error => logger.warn({ err: error }, 'a connection to Postgres broke; it is replaced'),
      { onAnswer: outages.postgres.outage.works },
    )
    const logs = createJobLogs({
      maxLines: settings.maxLogLines,
      write: (worker, lines, progress) => writeLogs(pool, schema, worker, lines, progress),
      counts: logCounts,
      logger,
    })
    threads = pooled
    const heldLocks = createLockWatch(pool, schema, worker => worker === lives?.workerId)
    probes = {
      postgres: createProbe(() => probePostgres(pool, schema)),
      redis: redis ? createProbe(async () => lives?.probeRedis()) : undefined,
      locks: createProbe(async () => refuseHeld(await heldLocks())),
    }
    const close = async () => {
      await pooled.close()
      await logs.close()
      await pool.end()
    }
    try {
      await loadTracing()
      await pooled.check(isolated(options.handlers))
      await patiently(() => checkDatabase(pool, schema, 'settle_and_claim'))
      const deployment = await patiently(() => readDeployment(pool, schema))
      await registerPatiently(() => registerTasks(pool, schema, tasks))
      return await beginLives({
        // Later lives are tried again for as long as it takes.
        begin: earlier => {
          const begin = () =>
            beginLife(
              {
                pool,
                postgres,
                listen: listen ?? postgres,
                redis: redis ? { config: redis, deployment } : undefined,
                schema,
                facts,
                settings: loop,
                handlers,
                threads: pooled,
                abortGraceMs,
                maxResultBytes,
                stallMs,
                logs,
                meter,
                memory,
                logger,
                handlerLogger: told,
                outages,
              },
              earlier,
            )
          return earlier ? begin() : patiently(begin)
        },
        onEnd: close,
        logger,
      })
    } catch (error) {
      await close()
      throw error
    }
  }

  let life: Promise<Lives> | undefined
  let lives: Lives | undefined
  let isStopping = false
  let metrics: Promise<Metrics> | undefined
  let lastChange: Promise<unknown> = Promise.resolve()

  /** One after another, so that the last call wins. */
  const change = (make: (running: Lives | undefined) => Promise<void>): Promise<void> => {
    const changed = lastChange.then(async () => {
      const running = await life?.catch(() => undefined)
      await patiently(() => make(running))
    })
    lastChange = changed.catch(() => undefined) // whoever asked is told
    return changed
  }

  const changeProperties = async (
    running: Lives | undefined,
    had: Pick<WorkerFacts, 'properties' | 'constraintTags'>,
  ) => {
    const { properties, constraintTags } = facts
    Object.assign(facts, had)
    try {
      await running?.setProperties(had)
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
      isStopping = stopped !== undefined
      const begun = await stopped?.catch(() => undefined) // a start that failed has nothing to stop
      await begun?.end(deadlineMs)
      isStopping = false
      if (life !== stopped) return
      life = undefined
      lives = undefined
    },
    get path() {
      return lives?.path ?? 'direct'
    },
    get serves() {
      const { name, tasks, queues, tags, properties } = facts
      return { name, tasks, queues, tags, properties }
    },
    drain: () => change(running => started(running).drain(true)),
    resume: () => change(running => started(running).drain(false)),
    get isDrained() {
      return lives?.isDrained ?? false
    },
    logCounts,
    async prometheus() {
      // Loading it takes 60 ms.
      metrics ??= import('./worker-metrics.ts').then(({ createWorkerMetrics }) =>
        createWorkerMetrics(settings.metricsPrefix, {
          meter,
          tasks: facts.tasks,
          limits: loop,
          maxTasks: settings.maxConcurrentTasks,
          maxThreads,
          memory,
          logCounts,
          threadsInUse: () => threads?.inUse ?? 0,
          path: () => lives?.path ?? 'direct',
          isDrained: () => lives?.isDrained ?? false,
          vitals: () => lives?.vitals(),
        }),
      )
      return (await metrics).render()
    },
    async health() {
      if (isStopping) return notReady('stopping')
      if (!probes || !life) return notReady('not started')
      // To register it needs a lock itself.
      if (!lives) return { ...notReady('starting'), locks: shownLocks(await probes.locks()) }
      return readHealth(lives, probes, settings.lease)
    },
    async setProperties(properties) {
      const had = { properties: { ...properties }, constraintTags: constraintTags(properties) }
      await change(running => changeProperties(running, had))
    },
  }
}

function started(lives: Lives | undefined): Lives {
  if (lives) return lives
  throw new LongshoreError(
    'WORKER_STOPPED',
    'the worker does not run: start() it before you drain or resume it',
  )
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

const isolated = (handlers: readonly Handler[]) =>
  handlers.flatMap(({ task, module }) => (module ? [{ task: task.name, module }] : []))

const distinct = (texts: string[]) => [...new Set(texts)]
