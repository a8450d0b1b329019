/** Owns what a peer can be tuned by: the settings it is measured with, those that `--sweep` tries, and why these. */
import type { Surroundings } from './peer.ts'

/** Numbers by name, so that a sweep can go over them and they travel as JSON. */
export type Settings = Readonly<Record<string, number>>

export interface Tuning<Own extends Settings = Settings> {
  readonly used: Own
  readonly candidates: readonly Own[]
  /** Jobs that a candidate drains. */
  readonly sweepJobs: number
  /** Where the candidates come from. */
  readonly source: string
  /** What the sweep said. */
  readonly found: string
}

/** Those of the sweep where there is one. */
export const settingsOf = <Own extends Settings>(tuning: Tuning<Own>, { settings }: Surroundings): Own => ({
  ...tuning.used,
  ...settings,
})
