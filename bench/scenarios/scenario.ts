/** Owns what a scenario is: one question, asked of one peer at a time in stores of its own. */
import type { Figure, Measurement } from '../measure/measurement.ts'
import type { Setting } from '../measure/setting.ts'
import type { Load } from '../peers/peer.ts'
import type { Workload } from '../peers/workload.ts'

export interface Scenario {
  /** For `--only`. */
  readonly id: string
  readonly question: string
  readonly figures: readonly Figure[]
  /** What the peers are set for. Default: a backlog. */
  readonly load?: Load
  /** Postgres has to count statements (`pg_stat_statements`). */
  readonly needsStatements?: boolean
  /** No worker takes part. */
  readonly isOfProducers?: boolean
  /** Longshore beside itself, in place of peers. Ratios are against the last one. */
  readonly variants?: readonly Variant[]
  /** The peer is installed in empty stores. Throws when a job is lost or runs twice. */
  measure(setting: Setting): Promise<Measurement>
}

/** Longshore against itself: what a scenario compares in place of peers. */
export interface Variant {
  readonly name: string
  readonly workload: Workload
  /** Who is measured, by its name among the known peers. Default: longshore in direct mode. */
  readonly peer?: string
}
