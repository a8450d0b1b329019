/** Owns the order of two builds beside each other: pair by pair, the one that goes first in turn, each in a database made anew. */

import type { Measurement } from '../measure/measurement.ts'
import { type Bench, measure } from '../run/measure-side.ts'
import { sidesOf } from '../run/sides.ts'
import type { Scenario } from '../scenarios/scenario.ts'

/** This checkout's build, and the other's. */
export const BUILDS = ['here', 'there'] as const
export type Build = (typeof BUILDS)[number]

export interface BesidePair {
  readonly scenario: string
  /** The peer, or the variant. */
  readonly side: string
  readonly pair: number
  readonly measured: Readonly<Record<Build, Measurement>>
}

export async function runPairs(options: {
  bench: Bench
  folders: Readonly<Record<Build, string>>
  scenarios: readonly Scenario[]
  peers: readonly string[]
  pairs: number
  onStart: (what: string) => void
  onPair: (pair: BesidePair) => void
}): Promise<BesidePair[]> {
  const { bench, folders, scenarios, peers, pairs, onStart, onPair } = options
  const done: BesidePair[] = []
  for (let pair = 1; pair <= pairs; pair++) {
    for (const scenario of scenarios) {
      for (const side of sidesOf(scenario, peers)) {
        const measured: Partial<Record<Build, Measurement>> = {}
        // The second of two may find a warmer machine, or one that still writes to disk.
        for (const build of pair % 2 === 1 ? BUILDS : BUILDS.toReversed()) {
          onStart(`pair ${pair} of ${pairs}: ${scenario.question}, ${side}, ${build} …`)
          measured[build] = await measure({ ...bench, longshore: folders[build] }, scenario, side)
        }
        const one = { scenario: scenario.id, side, pair, measured: measured as BesidePair['measured'] }
        done.push(one)
        onPair(one)
      }
    }
  }
  return done
}
