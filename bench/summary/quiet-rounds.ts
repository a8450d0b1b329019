/**
 * Owns which measurements count: of a round the quiet one of its attempts, over the rounds the quiet ones. Noisy ones count
 * only where there is no quiet one.
 */

import { type Spread, spreadOf } from '../measure/statistics.ts'
import type { Result } from '../run/rounds.ts'

export interface Sample {
  readonly value: number
  readonly isNoisy: boolean
}

/** By round. */
export type Samples = ReadonlyMap<number, Sample>

/** The attempt of each round that counts: a quiet one, or the last. */
export function countingResults(results: readonly Result[]): Result[] {
  const byRound = new Map<number, Result>()
  for (const result of results) {
    const before = byRound.get(result.round)
    if (!before || before.isNoisy) byRound.set(result.round, result)
  }
  return [...byRound.values()]
}

/** Of one side of one scenario; a round without such a figure is left out. */
export function samplesOf(results: readonly Result[], pick: (result: Result) => number | undefined): Samples {
  return new Map(
    countingResults(results).flatMap(result => {
      const value = pick(result)
      return value === undefined ? [] : [[result.round, { value, isNoisy: result.isNoisy }] as const]
    }),
  )
}

/** Within each round that both have: noisy when one of them was. */
export const ratiosOf = (ours: Samples, theirs: Samples): Sample[] =>
  [...ours].flatMap(([round, { value, isNoisy }]) => {
    const their = theirs.get(round)
    return their ? [{ value: value / their.value, isNoisy: isNoisy || their.isNoisy }] : []
  })

export function spreadOfQuiet(samples: Iterable<Sample>): Spread | undefined {
  const all = [...samples]
  const quiet = all.filter(({ isNoisy }) => !isNoisy)
  const counting = quiet.length > 0 ? quiet : all
  return counting.length === 0 ? undefined : spreadOf(counting.map(({ value }) => value))
}
