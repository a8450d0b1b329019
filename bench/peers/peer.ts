/** Owns the seam between the harness and a queue: what a peer must be able to do to be measured. */
import type { JobData } from '../job-data.ts'
import type { Workload } from '../workload.ts'

/** Where the stores are, and what else a peer's processes must know. Travels to forked workers as JSON. */
export interface Surroundings {
  readonly postgres: string
  /** Folder of the built longshore, see `build-longshore.ts`. */
  readonly longshore: string
  /** For longshore beside itself; otherwise one task without limits. */
  readonly workload?: Workload
}

export interface Peer {
  /** Makes an empty installation in an empty database. */
  install(): Promise<void>
  openProducer(): Promise<PeerProducer>
  /** Resolves when the worker takes jobs. It is the `number`th of its kind, from 0 on. */
  startWorker(onJob: (data: JobData) => void, number: number): Promise<PeerWorker>
  /** Jobs that have not ended, as the durable store knows them: SQL that yields one number `n`. */
  readonly countUnfinished: string
}

export interface PeerProducer {
  /** Resolves when the job is durable. */
  addOne(data: JobData): Promise<unknown>
  addMany(list: readonly JobData[]): Promise<unknown>
  close(): Promise<void>
}

export interface PeerWorker {
  stop(): Promise<void>
}

export type OpenPeer = (surroundings: Surroundings) => Promise<Peer>
