/** Owns the seam between the harness and a queue: what a peer must be able to do to be measured. */
import type { Redis } from 'ioredis'
import type { JobData } from '../jobs/job-data.ts'
import type { Settings } from './tuning.ts'
import type { Workload } from './workload.ts'

/** What a peer is put to: many jobs that wait, a steady stream of single ones, or a lone job now and then. */
export type Load = 'backlog' | 'stream' | 'light'

/** Where the stores are, and what else a peer's processes must know. Travels to forked processes as JSON. */
export interface Surroundings {
  readonly postgres: string
  /** Only for peers that need it. */
  readonly redis?: string
  /** Folder of the built longshore, see `processes/build-longshore.ts`. */
  readonly longshore: string
  /** Peers whose users would set them differently for it may do so too. */
  readonly load: Load
  /** For longshore beside itself; otherwise one task without limits. */
  readonly workload?: Workload
  /** In place of the peer's own, for `--sweep`. */
  readonly settings?: Settings
}

export interface Peer {
  /** Makes an empty installation in empty stores. */
  install(): Promise<void>
  openProducer(): Promise<PeerProducer>
  /** Resolves when the worker takes jobs. It is the `number`th of its kind, from 0 on. */
  startWorker(onJob: (data: JobData) => void, number: number): Promise<Running>
  /** Runs beside producers and workers in a process of its own, where a peer has such a thing. */
  startRelay?(): Promise<Running & { metrics?(): object }>
  /** Jobs that have not ended, as the deciding store knows them: SQL that yields one number `n`, or a look at Redis. */
  readonly countUnfinished: string | ((redis: Redis) => Promise<number>)
}

export interface PeerProducer {
  /** Resolves when the job is as durable as the peer makes it. */
  addOne(data: JobData): Promise<unknown>
  addMany(list: readonly JobData[]): Promise<unknown>
  /** Stores jobs that no worker sees until the returned function is called: then it sees all of them at once. */
  stage?(list: readonly JobData[]): Promise<() => Promise<void>>
  close(): Promise<void>
}

export interface Running {
  stop(): Promise<unknown>
}

export type OpenPeer = (surroundings: Surroundings) => Promise<Peer>

export function redisOf({ redis }: Surroundings): string {
  if (redis === undefined) throw new Error('a peer that needs Redis has to say so in known-peers.ts')
  return redis
}
