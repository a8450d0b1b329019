/**
 * Starts what a worker has one of, over all its lives: its pool, its threads, the buffer of its log lines; then its first life
 * (`worker-life.ts`), which is followed by others if it dies (`worker-restart.ts`).
 */
import type { LogCounts } from '../job/job-log.ts'
import type { Handler } from '../job/task.ts'
import { checkDatabase } from '../postgres/check-database.ts'
import { openPool } from '../postgres/connect.ts'
import { refuseFailing } from '../postgres/failing-duties.ts'
import { createLockWatch } from '../postgres/held-locks.ts'
import { probePostgres } from '../postgres/probe.ts'
import { registerTasks } from '../postgres/register-tasks.ts'
import { readDeployment } from '../postgres/relay-reads.ts'
import { patient } from '../postgres/unavailable.ts'
import { writeLogs } from '../postgres/write-logs.ts'
import { createProbe, refuseHeld } from '../runtime/health.ts'
import { withOutages } from '../runtime/outage.ts'
import { loadTracing } from '../runtime/tracing.ts'
import { createJobLogs } from './job-logs.ts'
import type { Meter } from './meter.ts'
import { createOutages } from './outages.ts'
import type { StuckHandlers } from './stuck-handlers.ts'
import { createThreadPool, type ThreadPool } from './thread-pool.ts'
import type { StoreProbes } from './worker-health.ts'
import { beginLife } from './worker-life.ts'
import type { WorkerPlan } from './worker-options.ts'
import { beginLives, type Lives } from './worker-restart.ts'

export interface StartedWorker {
  readonly threads: ThreadPool
  readonly probes: StoreProbes
  /** Rejects when the first life cannot begin; then everything has been closed. */
  readonly lives: Promise<Lives>
}

/** Two exchanges under way; log lines, payloads and the upkeep come between. The third connection of a worker is the heartbeat's. */
const CONNECTIONS = 2
const PAUSES = { firstMs: 100, maxMs: 1000 }
const patiently = patient({ ...PAUSES, maxTries: 5 })
/** A changed limit waits for the locks of its slots: a process that is paused in the middle of a completion keeps them for ten seconds. */
const registerPatiently = patient({ ...PAUSES, maxTries: 20 })
/** Making a thread costs 40 ms, keeping one 9 MB. */
const THREAD_IDLE_MS = 30_000

export function startWorker(
  plan: WorkerPlan,
  figures: { meter: Meter; memory: () => number; logCounts: LogCounts; stuck: StuckHandlers },
): StartedWorker {
  const { postgres, redis, schema, facts, handlers } = plan
  const outages = createOutages(plan.logger)
  const logger = withOutages(plan.logger, [outages.redis, outages.postgres])
  const threads = createThreadPool({
    maxThreads: plan.maxThreads,
    memoryMb: plan.threadMemoryMb,
    abortGraceMs: plan.abortGraceMs,
    idleMs: THREAD_IDLE_MS,
    logger: plan.logger,
  })
  const pool = openPool(
    postgres,
    CONNECTIONS,
    error => logger.warn({ err: error }, 'a connection to Postgres broke; it is replaced'),
    { onAnswer: outages.postgres.outage.works },
  )
  const logs = createJobLogs({
    maxLines: plan.maxLogLines,
    write: (worker, lines, progress) => writeLogs(pool, schema, worker, lines, progress),
    counts: figures.logCounts,
    logger,
  })
  let begun: Lives | undefined
  const heldLocks = createLockWatch(pool, schema, worker => worker === begun?.workerId)
  const close = async () => {
    await threads.close()
    await logs.close()
    await pool.end()
  }

  const begin = async (): Promise<Lives> => {
    await loadTracing()
    await threads.check(isolated(handlers))
    await patiently(() => checkDatabase(pool, schema, 'settle_and_claim'))
    const deployment = await patiently(() => readDeployment(pool, schema))
    await registerPatiently(() => registerTasks(pool, schema, plan.tasks))
    const life = {
      pool,
      postgres,
      listen: plan.listen,
      redis: redis ? { config: redis, deployment } : undefined,
      schema,
      facts,
      settings: plan.loop,
      handlers,
      threads,
      maxCompletions: plan.maxCompletions,
      abortGraceMs: plan.abortGraceMs,
      aloneDeadlineMs: plan.aloneDeadlineMs,
      maxResultBytes: plan.maxResultBytes,
      stallMs: plan.stallMs,
      logs,
      stuck: figures.stuck,
      meter: figures.meter,
      memory: figures.memory,
      logger,
      handlerLogger: plan.logger,
      outages,
    }
    begun = await beginLives({
      // Later lives are tried again for as long as it takes.
      begin: earlier => (earlier ? beginLife(life, earlier) : patiently(() => beginLife(life))),
      onEnd: close,
      logger,
    })
    return begun
  }

  return {
    threads,
    probes: {
      postgres: createProbe(() => probePostgres(pool, schema)),
      redis: redis ? createProbe(async () => begun?.probeRedis()) : undefined,
      locks: createProbe(async () => refuseHeld(await heldLocks())),
      upkeep: createProbe(() => refuseFailing(pool, schema)),
    },
    lives: begin().catch(async error => {
      await close()
      throw error
    }),
  }
}

const isolated = (handlers: ReadonlyMap<string, Handler>) =>
  [...handlers.values()].flatMap(({ task, module }) => (module ? [{ task: task.name, module }] : []))
