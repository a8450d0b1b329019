/** Owns what a fleet of unlike workers is, and the load it gets: plain data, as it travels to the worker processes. */

export interface Fleet {
  readonly tasks: readonly FleetTask[]
  /** Each in a process of its own. */
  readonly workers: readonly FleetWorker[]
  readonly loads: readonly FleetLoad[]
}

export interface FleetTask {
  readonly name: string
  readonly concurrency?: number
  readonly concurrencyPerKey?: number
}

export interface FleetWorker {
  readonly tasks: readonly string[]
  readonly queues?: readonly string[]
  readonly tags?: readonly string[]
  readonly properties?: Readonly<Record<string, string>>
  /** Jobs that it runs at once. */
  readonly permits: number
}

/** Jobs that are alike. */
export interface FleetLoad {
  readonly task: string
  readonly queue?: string
  readonly tag?: string
  readonly constraints?: Readonly<Record<string, string>>
  /** Jobs go round so many keys. */
  readonly keys?: number
  readonly priority?: number
  readonly runMs: number
  /** A backlog that is kept up, or jobs that come one by one. */
  readonly comes: { readonly kept: number } | { readonly perSecond: number }
}

/** What a job of a fleet carries. */
export interface FleetJob {
  seq: number
  runMs: number
}

const DEFAULT = ['default']

export const mayRun = (worker: FleetWorker, load: FleetLoad): boolean =>
  worker.tasks.includes(load.task) &&
  (worker.queues ?? DEFAULT).includes(load.queue ?? 'default') &&
  (worker.tags ?? DEFAULT).includes(load.tag ?? 'default') &&
  Object.entries(load.constraints ?? {}).every(([key, value]) => worker.properties?.[key] === value)

/** Jobs of one lane are alike: they wait in one line. */
export const keyOf = ({ keys = 0 }: FleetLoad, seq: number): string | undefined =>
  keys === 0 ? undefined : `key-${seq % keys}`
