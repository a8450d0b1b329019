/**
 * The worker: claims jobs, runs them, settles them. In direct mode it claims straight from Postgres. Its life is here;
 * the traffic with Postgres is in `exchange-loop.ts`, one run in `run-job.ts`, waking up in `wake-up.ts`.
 */
import { hostname } from 'node:os'
import { type Duration, toMs } from '../job/duration.ts'
import { LongshoreError } from '../job/errors.ts'
import { checkLabel, type Handler } from '../job/task.ts'
import { checkDatabase } from '../postgres/check-database.ts'
import { openPool, type Pool, type PostgresConfig } from '../postgres/connect.ts'
import { type Listener, openListener } from '../postgres/listener.ts'
import { registerTasks } from '../postgres/register-tasks.ts'
import {
  beat,
  readLanes,
  readLeases,
  registerWorker,
  setListening,
  unregisterWorker,
} from '../postgres/register-worker.ts'
import { channelName, checkSchemaName, DEFAULT_SCHEMA } from '../postgres/schema-name.ts'
import { type ClaimedJob, settleAndClaim } from '../postgres/settle-and-claim.ts'
import { isTransientError } from '../postgres/transient-error.ts'
import { readWorkerSettings, type WorkerSettings } from '../runtime/config.ts'
import { createLogger, type Logger } from '../runtime/logger.ts'
import { withRetry } from '../runtime/retry.ts'
import { startUpkeep, type Upkeep } from '../upkeep/start-upkeep.ts'
import { createExchangeLoop, type ExchangeLoop } from './exchange-loop.ts'
import { type Run, runJob } from './run-job.ts'
import { createWakeUp, type WakeUp } from './wake-up.ts'

export interface WorkerOptions extends Partial<WorkerSettings> {
  /** Where Postgres is: a connection string or `pg` settings. Default: `DATABASE_URL`. */
  postgres?: PostgresConfig
  /** Schema of the installation. Default `'longshore'`. */
  schema?: string
  /** What this worker can do: `[resize.handle(async job => …), …]`. */
  handlers: readonly Handler[]
  /** The tags it offers. Default: the tags of its tasks. */
  tags?: readonly string[]
  /** The queues it serves. Default: the queues of its tasks. */
  queues?: readonly string[]
  /** Shown in logs and tables. Default: host name and process id. */
  name?: string
  /** How long a handler may take to return after its signal fired. Default `'5s'`. */
  abortGrace?: Duration
  /** Largest result in bytes of JSON, at most 4 MiB. Default 256 KiB. */
  maxResultBytes?: number
  logger?: Logger
}

export interface StopOptions {
  /** How long running jobs may go on before their signals fire. Default `'30s'`. */
  deadline?: Duration
}

export interface Worker {
  /** The id of this start, once started. */
  readonly id: number | undefined
  /** Resolves when it claims jobs. */
  start(): Promise<void>
  /** Claims no more, lets running jobs end within the deadline, gives back what does not, and closes. */
  stop(options?: StopOptions): Promise<void>
}

const BEAT_MS = 5000
/** A lost reply may have committed a claim; its transaction may still be under way when we first look. */
const LEASE_CHECKS_MS = [1000, 5000, 30_000]
const MOST_RESULT_BYTES = 4 * 1024 * 1024

export function createWorker(options: WorkerOptions): Worker {
  const settings = readWorkerSettings(options)
  const schema = checkSchemaName(options.schema ?? DEFAULT_SCHEMA)
  const logger = options.logger ?? createLogger('longshore')
  const postgres = options.postgres ?? process.env['DATABASE_URL'] ?? ''
  const handlers = byTask(options.handlers)
  const abortGraceMs = toMs(options.abortGrace ?? '5s', 'abortGrace')
  const maxResultBytes = options.maxResultBytes ?? 256 * 1024
  if (!(maxResultBytes > 0 && maxResultBytes <= MOST_RESULT_BYTES)) {
    throw new LongshoreError(
      'CONFIG_INVALID',
      `maxResultBytes must be between 1 and ${MOST_RESULT_BYTES}; got ${maxResultBytes}`,
    )
  }
  const facts = {
    name: checkLabel('name', options.name ?? `${hostname().slice(0, 150)}:${process.pid}`, 200),
    queues: distinct(options.queues?.map(queue => checkLabel('queue', queue)) ?? queuesOf(options.handlers)),
    tasks: [...handlers.keys()],
    tags: distinct(options.tags?.map(tag => checkLabel('tag', tag)) ?? options.handlers.map(h => h.task.tag)),
    constraintTags: ['c:'],
  }

  let life: Promise<Life> | undefined
  let id: number | undefined

  const start = async (): Promise<Life> => {
    const pool = openPool(postgres, 3, error =>
      logger.warn({ err: error }, 'a connection to Postgres broke; it is replaced'),
    )
    try {
      await withRetry(() => checkDatabase(pool, schema), {
        firstMs: 100,
        maxMs: 1000,
        maxTries: 5,
        isTransient: isTransientError,
      })
      await registerTasks(
        pool,
        schema,
        [...handlers.values()].map(handler => handler.task),
      )
      id = await registerWorker(pool, schema, facts)
      return await beginLife({
        pool,
        workerId: id,
        postgres,
        schema,
        settings,
        handlers,
        abortGraceMs,
        maxResultBytes,
        logger,
      })
    } catch (error) {
      await pool.end()
      throw error
    }
  }

  return {
    get id() {
      return id
    },
    async start() {
      life ??= start().catch(error => {
        life = undefined
        throw error
      })
      await life
    },
    async stop(stop = {}) {
      const running = await life?.catch(() => undefined)
      await running?.end(toMs(stop.deadline ?? '30s', 'deadline'))
    },
  }
}

interface Life {
  end(deadlineMs: number): Promise<void>
}

/** From registration to deregistration. */
async function beginLife(given: {
  pool: Pool
  workerId: number
  postgres: PostgresConfig
  schema: string
  settings: WorkerSettings
  handlers: Map<string, Handler>
  abortGraceMs: number
  maxResultBytes: number
  logger: Logger
}): Promise<Life> {
  const { pool, workerId, schema, settings, handlers } = given
  const logger = given.logger.child({ worker: workerId })
  const runs = new Map<string, Run>() // by lease: a job may be claimed again while an abandoned handler is still inside
  const checks = new Set<NodeJS.Timeout>()
  let lanes = await readLanes(pool, schema)
  let isEnding = false
  let loop: ExchangeLoop
  let wakeUp: WakeUp
  let upkeep: Upkeep | undefined

  const bell = channelName(schema, `worker_${workerId}`)
  const listener: Listener = await openListener({
    postgres: given.postgres,
    channels: [bell, channelName(schema, 'due')],
    onNotify: channel => (channel === bell ? wakeUp.onRing() : upkeep?.onDue()),
    onGap: () => wakeUp.onRing(),
    onError: error => logger.warn({ err: error }, 'the listening connection broke; reconnecting'),
  })

  const startJobs = (jobs: ClaimedJob[]) => {
    wakeUp.onClaimed(jobs.length)
    if (jobs.every(job => lanes.has(job.lane))) {
      for (const job of jobs) startJob(job)
      return
    }
    readLanes(pool, schema).then(
      read => {
        lanes = read
        for (const job of jobs) startJob(job)
      },
      error => {
        logger.warn({ err: error }, 'could not read the lanes of claimed jobs; giving the jobs back')
        for (const job of jobs) giveBack(job)
      },
    )
  }

  const giveBack = (job: ClaimedJob) => {
    loop.settle({ id: job.id, leaseToken: job.leaseToken, kind: 'released' })
    loop.freePermit()
  }

  const startJob = (job: ClaimedJob) => {
    const handler = handlers.get(lanes.get(job.lane) ?? '')
    if (!handler || isEnding) return giveBack(job)
    const lease = `${job.id} ${job.leaseToken}`
    const run = runJob(job, handler, {
      abortGraceMs: given.abortGraceMs,
      maxResultBytes: given.maxResultBytes,
      logger,
      onOutcome: outcome => loop.settle(outcome),
      onReturn: () => {
        runs.delete(lease)
        loop.freePermit()
        if (runs.size === 0) onEmpty?.()
      },
    })
    runs.set(lease, run)
  }
  let onEmpty: (() => void) | undefined

  /** Give back runs that Postgres holds for us and that we know nothing of. */
  const checkLeases = async () => {
    const before = new Set(runs.keys())
    const leases = await readLeases(pool, schema, workerId)
    const unknown = leases.filter(lease => {
      const key = `${lease.id} ${lease.leaseToken}`
      return !before.has(key) && !runs.has(key)
    })
    for (const lease of unknown) loop.settle({ ...lease, kind: 'released' })
    if (unknown.length > 0)
      logger.warn({ jobs: unknown.length }, 'gave back jobs whose claim was answered to nobody')
  }

  let hasUnclearClaim = false
  const checkLeasesSoon = () => {
    if (hasUnclearClaim || isEnding) return
    hasUnclearClaim = true
    for (const ms of LEASE_CHECKS_MS) {
      const timer = setTimeout(() => {
        checks.delete(timer)
        if (checks.size === 0) hasUnclearClaim = false
        checkLeases().catch(error => {
          logger.warn({ err: error }, 'could not compare leases with Postgres; trying again')
          hasUnclearClaim = false
          checkLeasesSoon()
        })
      }, ms)
      checks.add(timer)
    }
  }

  wakeUp = createWakeUp({
    pollIntervalMs: settings.pollIntervalMs,
    setListening: isListening => setListening(pool, schema, workerId, isListening),
    look: () => loop.look(),
    onError: error => logger.info({ err: error }, 'could not say whether this worker listens'),
  })
  loop = createExchangeLoop({
    settings,
    exchange: (outcomes, limit) => settleAndClaim(pool, schema, workerId, outcomes, limit),
    onClaimed: startJobs,
    onUnclearClaim: checkLeasesSoon,
    onIdle: () => wakeUp.onIdle(),
    onFull: () => wakeUp.onFull(),
    logger,
  })
  const beats = setInterval(() => {
    beat(listener, schema, workerId).catch(error => logger.info({ err: error }, 'a beat was missed'))
  }, BEAT_MS)
  upkeep = startUpkeep({ db: listener, pool, schema, holder: `worker ${workerId}`, logger })
  loop.look()

  const end = async (deadlineMs: number) => {
    isEnding = true
    wakeUp.stop()
    for (const timer of checks) clearTimeout(timer)
    loop.stopClaiming()
    // A claim under way may still bring jobs: they are given back at once.
    await loop.idle()
    await allReturned(deadlineMs)
    for (const run of runs.values()) {
      run.abort(new LongshoreError('WORKER_STOPPED', 'the worker is stopping'))
    }
    await allReturned(given.abortGraceMs + 100)
    await loop.idle()
    clearInterval(beats)
    await upkeep?.stop()
    await unregisterWorker(pool, schema, workerId)
    await listener.close()
    await pool.end()
  }

  const allReturned = (ms: number) =>
    new Promise<void>(resolve => {
      if (runs.size === 0) return resolve()
      const timer = setTimeout(resolve, ms)
      onEmpty = () => {
        clearTimeout(timer)
        resolve()
      }
    })

  let ended: Promise<void> | undefined
  return {
    end(deadlineMs) {
      ended ??= end(deadlineMs)
      return ended
    },
  }
}

function byTask(handlers: readonly Handler[]): Map<string, Handler> {
  const found = new Map<string, Handler>()
  for (const handler of handlers) {
    if (found.has(handler.task.name)) {
      throw new LongshoreError('CONFIG_INVALID', `two handlers for task ${handler.task.name}: keep one`)
    }
    found.set(handler.task.name, handler)
  }
  if (found.size === 0) {
    throw new LongshoreError(
      'CONFIG_INVALID',
      'a worker needs at least one handler: pass `handlers: [task.handle(…)]`',
    )
  }
  return found
}

const queuesOf = (handlers: readonly Handler[]) => handlers.map(handler => handler.task.queue)
const distinct = (texts: string[]) => [...new Set(texts)]
