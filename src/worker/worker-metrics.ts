/** Owns how a worker's figures read in Prometheus. */
import type { LogCounts } from '../job/job-log.ts'
import { createMetrics, type Metrics } from '../runtime/prometheus.ts'
import { type PressureLimits, pressureFactor } from './claim-size.ts'
import { type Meter, TaskFigures } from './meter.ts'
import type { StuckHandlers } from './stuck-handlers.ts'
import type { Vitals } from './worker-life.ts'

/** Where the figures are. */
export interface WorkerFigures {
  readonly meter: Meter
  readonly tasks: readonly string[]
  readonly limits: PressureLimits
  readonly maxTasks: number
  readonly maxThreads: number
  readonly memory: () => number
  readonly logCounts: LogCounts
  readonly stuck: StuckHandlers
  readonly threadsInUse: () => number
  readonly path: () => 'redis' | 'direct'
  readonly isDrained: () => boolean
  /** None: it does not run. */
  readonly vitals: () => Vitals | undefined
}

const COMPLETED = ['succeeded', 'failed', 'retried'] as const
const PATHS = ['redis', 'direct'] as const

export function createWorkerMetrics(prefix: string, of: WorkerFigures): Metrics {
  const { meter, logCounts } = of
  const metrics = createMetrics(`${prefix}worker_`)
  const { gauge, counter, histogram } = metrics
  // A task of which nothing has run is there with zeros: what is not there cannot rise.
  const byTask = () => of.tasks.map(task => ({ task, figures: meter.tasks.get(task) ?? new TaskFigures() }))

  gauge('in_flight_tasks', 'Jobs whose handler has not returned', () => of.vitals()?.inFlight ?? 0)
  gauge(
    'stuck_handlers',
    'Handlers that ignored their signal and have not returned: each keeps its permit',
    () => of.stuck.count,
  )
  counter('tasks_completed_total', 'Runs that have ended, by task and outcome', () =>
    byTask().flatMap(({ task, figures }) =>
      COMPLETED.map(outcome => ({ labels: { task, outcome }, value: figures[outcome] })),
    ),
  )
  counter('tasks_released_total', 'Runs that were given back: a stop, a cancel, a lost lease', () =>
    byTask().map(({ task, figures }) => ({ labels: { task }, value: figures.released })),
  )
  histogram('task_duration_seconds', 'How long the handlers of completed runs took', () =>
    byTask().map(({ task, figures: { seconds } }) => ({
      bounds: seconds.bounds,
      counts: seconds.counts,
      sum: seconds.sum,
      labels: { task },
    })),
  )
  counter('claims_total', 'Calls that asked for jobs', () => meter.claims)
  histogram('claim_size', 'Jobs that such a call was given', () => [meter.claimSizes])

  gauge('max_tasks', 'Jobs that may run at once', () => of.maxTasks)
  gauge('task_duration_p99_seconds', 'The 99th percentile of the last 10 to 20 s', () => meter.p99Ms() / 1000)
  gauge('memory_usage_ratio', 'The share that the process uses of its memory', of.memory)
  gauge(
    'event_loop_lag_seconds',
    'The longest that the event loop was late in the last 15 to 30 s',
    () => (of.vitals()?.lagMs ?? 0) / 1000,
  )
  gauge('pressure_factor', 'What claims are multiplied with under pressure; 1: none', () =>
    pressureFactor({ memory: of.memory(), p99Ms: meter.p99Ms() }, of.limits),
  )
  gauge('threads_in_use', 'Threads that have a job', of.threadsInUse)
  gauge('max_threads', 'Threads that it may have', () => of.maxThreads)

  gauge('is_running', 'Whether it has started, and has its lease', () =>
    Number(of.vitals()?.isAlive ?? false),
  )
  gauge('is_drained', 'Whether it was told to claim nothing', () => Number(of.isDrained()))
  gauge('path', 'Where its jobs come from: 1 for that way', () =>
    PATHS.map(path => ({ labels: { path }, value: Number(of.path() === path) })),
  )
  gauge('heartbeat_age_seconds', 'How long ago Postgres answered its last sign of life', () => {
    const vitals = of.vitals()
    return vitals ? [{ value: vitals.sinceBeatMs / 1000 }] : []
  })

  counter('log_lines_written_total', 'Lines of handlers that were stored', () => logCounts.written)
  counter('log_lines_cut_total', 'Of those, lines that were not stored whole', () => logCounts.cut)
  counter('log_lines_dropped_total', 'Lines of handlers that were dropped, by reason', () =>
    Object.entries(logCounts.dropped).map(([reason, value]) => ({ labels: { reason }, value })),
  )
  return metrics
}
