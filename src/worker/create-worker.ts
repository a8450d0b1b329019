/**
 * The worker: claims jobs, runs them, settles them. `worker-options.ts` checks what it is told, `start-worker.ts` starts it, `worker-life.ts` is one life of
 * it, `exchange-loop.ts` the traffic with its job source, `runs.ts` what it runs, `run-job.ts` one run.
 */
import { checkOptions } from '../job/check-options.ts'
import { constraintTags } from '../job/constraints.ts'
import { type Duration, toTimerMs } from '../job/duration.ts'
import { LongshoreError } from '../job/errors.ts'
import type { LogCounts } from '../job/job-log.ts'
import type { WorkerFacts } from '../postgres/register-worker.ts'
import { patient } from '../postgres/unavailable.ts'
import { shownLocks } from '../runtime/health.ts'
import { createMemoryGauge } from '../runtime/memory.ts'
import type { Exposition, Metrics } from '../runtime/prometheus.ts'
import { noLogCounts } from './job-logs.ts'
import { Meter } from './meter.ts'
import { type StartedWorker, startWorker } from './start-worker.ts'
import { StuckHandlers } from './stuck-handlers.ts'
import { notReady, readHealth, type WorkerHealth } from './worker-health.ts'
import { readWorkerOptions, type WorkerOptions } from './worker-options.ts'
import type { Lives } from './worker-restart.ts'

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
  /** Where its jobs come from at this moment: through Redis, or directly from Postgres. */
  readonly path: 'redis' | 'direct'
  /** Which jobs it claims: those of these tasks, queues and tags that ask for no other properties. */
  readonly serves: {
    readonly name: string
    readonly tasks: readonly string[]
    readonly queues: readonly string[]
    readonly tags: readonly string[]
    readonly properties: Readonly<Record<string, string>>
  }
  /** What became of the lines that its handlers have logged. */
  readonly logCounts: LogCounts
  /** Its metrics for Prometheus, as `longshore worker --metrics-port` serves them at `/metrics`. */
  prometheus(): Promise<Exposition>
  /** Whether it can do its work, as served at `/readyz`: asks the stores, each for at most two seconds. */
  health(): Promise<WorkerHealth>
}

const patiently = patient({ firstMs: 100, maxMs: 1000, maxTries: 5 })

export function createWorker(options: WorkerOptions): Worker {
  const plan = readWorkerOptions(options)
  const { facts } = plan
  const meter = new Meter()
  const memory = createMemoryGauge()
  const logCounts = noLogCounts()
  const stuck = new StuckHandlers()
  let started: StartedWorker | undefined
  let life: Promise<Lives> | undefined
  let lives: Lives | undefined
  let isStopping = false
  let metrics: Promise<Metrics> | undefined
  let lastChange: Promise<unknown> = Promise.resolve()

  const start = (): Promise<Lives> => {
    started = startWorker(plan, { meter, memory, logCounts, stuck })
    return started.lives
  }

  /** One after another, so that the last call wins. */
  const change = (make: (running: Lives | undefined) => Promise<void>): Promise<void> => {
    const changed = lastChange.then(async () => {
      const running = await life?.catch(() => undefined)
      await patiently(() => make(running))
    })
    lastChange = changed.catch(() => undefined) // the caller is told
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
      life ??= start().catch(error => {
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
    drain: () => change(running => mustRun(running).drain(true)),
    resume: () => change(running => mustRun(running).drain(false)),
    get isDrained() {
      return lives?.isDrained ?? false
    },
    logCounts,
    async prometheus() {
      // Loading it takes 60 ms.
      metrics ??= import('./worker-metrics.ts').then(({ createWorkerMetrics }) =>
        createWorkerMetrics(plan.metricsPrefix, {
          meter,
          tasks: facts.tasks,
          limits: plan.loop,
          maxTasks: plan.loop.maxConcurrentTasks,
          maxThreads: plan.maxThreads,
          memory,
          logCounts,
          stuck,
          threadsInUse: () => started?.threads.inUse ?? 0,
          path: () => lives?.path ?? 'direct',
          isDrained: () => lives?.isDrained ?? false,
          vitals: () => lives?.vitals(),
        }),
      )
      return (await metrics).render()
    },
    async health() {
      if (isStopping) return notReady('stopping')
      if (!started || !life) return notReady('not started')
      // To register it needs a lock itself.
      if (!lives) return { ...notReady('starting'), locks: shownLocks(await started.probes.locks()) }
      return readHealth(lives, started.probes, {
        leaseMs: facts.leaseMs,
        stuck,
        maxTasks: plan.loop.maxConcurrentTasks,
      })
    },
    async setProperties(properties) {
      const had = { properties: { ...properties }, constraintTags: constraintTags(properties) }
      await change(running => changeProperties(running, had))
    },
  }
}

function mustRun(lives: Lives | undefined): Lives {
  if (lives) return lives
  throw new LongshoreError(
    'WORKER_STOPPED',
    'the worker does not run: start() it before you drain or resume it',
  )
}
