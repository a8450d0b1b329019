/** Owns the verdict on goals: the ratio within each round, and whether its median reaches what was asked for. */

import { type Spread, spreadOf } from '../measure/statistics.ts'
import { knownPeers } from '../peers/known-peers.ts'
import type { Result } from '../run/rounds.ts'
import type { Goal } from './goals.ts'
import { ratiosOf, type Samples, samplesOf, spreadOfQuiet } from './quiet-rounds.ts'

export interface Verdict {
  goal: Goal
  /** Or the figure itself, where the goal is about nobody else. */
  ratio: Spread
  isReached: boolean
  /** Whom the goal is about too, but who was not measured: then it says less. */
  missing: string[]
}

/** Of the goals that this run says something about. */
export function checkGoals(goals: readonly Goal[], results: readonly Result[]): Verdict[] {
  return goals.flatMap(goal => {
    if (goal.isForEach) return checkEach(goal, resultsOf(results, goal, goal.side))
    const sides = sidesOfGoal(goal)
    const samples = (side: string) => samplesOf(resultsOf(results, goal, side), result => pick(goal, result))
    const ours = samples(goal.side)
    const theirs = sides.map(samples)
    const ratio = spreadOfQuiet(goal.to === undefined ? ours.values() : ratiosOf(ours, best(goal, theirs)))
    if (!ratio) return []
    const missing = sides.filter(
      (side, i) => theirs[i]?.size === 0 && !sides.includes(knownPeers[side]?.producerOf ?? ''),
    )
    return [{ goal, ratio, isReached: isWithin(goal.asked, ratio.median), missing }]
  })
}

/** Of a goal that is about nobody else. */
function checkEach(goal: Goal, results: readonly Result[]): Verdict[] {
  const values = results.flatMap(result => pick(goal, result) ?? [])
  if (values.length === 0) return []
  const isReached = values.every(value => isWithin(goal.asked, value))
  return [{ goal, ratio: spreadOf(values), isReached, missing: [] }]
}

const sidesOfGoal = ({ to }: Goal): readonly string[] =>
  to === undefined ? [] : typeof to === 'string' ? [to] : to.bestOf

const resultsOf = (results: readonly Result[], goal: Goal, side: string) =>
  results.filter(result => result.scenario === goal.scenario && result.side === side)

const pick = ({ figure }: Goal, result: Result): number | undefined =>
  typeof figure === 'string' ? result.figures[figure] : result.cores[figure.cores]

const isWithin = (asked: Goal['asked'], value: number): boolean =>
  'atLeast' in asked ? value >= asked.atLeast : value <= asked.atMost

/** In each round the one that is hardest to beat. */
function best({ asked }: Goal, theirs: readonly Samples[]): Samples {
  const isBetter = (a: number, b: number) => ('atLeast' in asked ? a > b : a < b)
  const found = new Map<number, { value: number; isNoisy: boolean }>()
  for (const samples of theirs) {
    for (const [round, sample] of samples) {
      const before = found.get(round)
      if (!before || isBetter(sample.value, before.value)) found.set(round, sample)
    }
  }
  return found
}
