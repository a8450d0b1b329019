/** The words of the liveness suite: what a fleet of workers is, which load it gets, and who may run what. Pure. */

export interface FleetPlan {
  tasks: readonly TaskPlan[]
  workers: readonly WorkerPlan[]
  loads: readonly LoadPlan[]
}

export interface TaskPlan {
  name: string
  concurrency?: number
  concurrencyPerKey?: number
}

/** Which jobs a worker may run. */
export interface Serves {
  tasks: readonly string[]
  queues: readonly string[]
  tags: readonly string[]
  properties: Readonly<Record<string, string>>
}

export interface WorkerPlan extends Serves {
  name: string
  permits: number
  /** Its handlers take so many times as long. */
  slowness?: number
  /** An hour: bells alone wake it. */
  pollInterval?: number
  /** When it starts. Default: before the first load. */
  joinsAtMs?: number
  changes?: readonly WorkerChange[]
}

export type WorkerChange =
  | { atMs: number; to: 'drain' | 'resume' | 'leave' }
  | { atMs: number; to: 'properties'; properties: Readonly<Record<string, string>> }

/** What a job asks for. */
export interface JobPlan {
  task: string
  queue: string
  tag: string
  constraints: Readonly<Record<string, string>>
  key?: string
}

/** Jobs that are alike, enqueued at one moment. */
export interface LoadPlan extends JobPlan {
  atMs: number
  count: number
  /** How long its handler takes. */
  runMs: number
  priority: number
  delayMs?: number
  /** Its handler goes on until everything that is planned has happened. */
  isHeld?: boolean
  /** Whenever one begins another is enqueued, until the fleet winds down: a backlog without an end. */
  isKept?: boolean
  /** `chain`: each after the one before. `fan`: all after the first. `workflow`: one at a time, in order. */
  links?: 'chain' | 'fan' | 'workflow'
}

/** The rule of requirement C6, written apart from the product's own. */
export function mayRun(worker: Serves, job: JobPlan): boolean {
  return (
    worker.tasks.includes(job.task) &&
    worker.queues.includes(job.queue) &&
    worker.tags.includes(job.tag) &&
    Object.entries(job.constraints).every(([key, value]) => worker.properties[key] === value)
  )
}

export const inWords = (job: JobPlan): string =>
  [
    job.task,
    job.queue === 'default' ? '' : `queue ${job.queue}`,
    job.tag === 'default' ? '' : `tag ${job.tag}`,
    ...Object.entries(job.constraints).map(([key, value]) => `${key}=${value}`),
    job.key === undefined ? '' : `key ${job.key}`,
  ]
    .filter(Boolean)
    .join(', ')
