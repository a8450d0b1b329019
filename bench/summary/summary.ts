/** Owns what a run says in the end: for each figure the spread over the rounds, the ratio within each round, and the goals. */

import { type Cores, PARTS, type Part } from '../measure/cpu.ts'
import type { Figure } from '../measure/measurement.ts'
import type { Spread } from '../measure/statistics.ts'
import type { Result, Unmeasured } from '../run/rounds.ts'
import { type Pair, pairsIn, sidesOf } from '../run/sides.ts'
import type { Scenario } from '../scenarios/scenario.ts'
import { checkGoals, type Verdict } from './check-goals.ts'
import { goals } from './goals.ts'
import { countingResults, ratiosOf, samplesOf, spreadOfQuiet } from './quiet-rounds.ts'

export interface FigureSummary {
  scenario: string
  figure: Figure
  /** Otherwise of the scenario's variants of longshore. */
  isOfPeers: boolean
  /** By peer or variant; left out where there is no such figure. */
  sides: Record<string, Spread>
  /** Of the same round. Only ratios within a round mean something. */
  ratios: Ratio[]
}

export interface Ratio extends Pair {
  ratio: Spread
}

export interface CoresSummary {
  scenario: string
  side: string
  /** Medians. */
  cores: Cores
  /** CPU time of all parts for one job: on a machine that is shared it moves less than the rate does. */
  usPerJob: Partial<Record<Part, number>>
  rounds: number
  /** Without a quiet attempt. */
  noisyRounds: number
}

export interface Summary {
  figures: FigureSummary[]
  cores: CoresSummary[]
  goals: Verdict[]
  unmeasured: readonly Unmeasured[]
}

export function summarize(
  scenarios: readonly Scenario[],
  peers: readonly string[],
  { results, unmeasured }: { results: readonly Result[]; unmeasured: readonly Unmeasured[] },
): Summary {
  const of = (scenario: Scenario, side: string) =>
    results.filter(result => result.scenario === scenario.id && result.side === side)
  return {
    figures: scenarios.flatMap(scenario =>
      scenario.figures.map(figure => summarizeFigure(scenario, figure, peers, side => of(scenario, side))),
    ),
    cores: scenarios.flatMap(scenario =>
      sidesOf(scenario, peers).map(side => summarizeCores(scenario.id, side, of(scenario, side))),
    ),
    goals: checkGoals(goals, results),
    unmeasured,
  }
}

function summarizeFigure(
  scenario: Scenario,
  figure: Figure,
  peers: readonly string[],
  resultsOf: (side: string) => readonly Result[],
): FigureSummary {
  const samples = (side: string) => samplesOf(resultsOf(side), ({ figures }) => figures[figure.name])
  const sides = sidesOf(scenario, peers).flatMap(side => {
    const spread = spreadOfQuiet(samples(side).values())
    return spread ? [[side, spread] as const] : []
  })
  const ratios = (figure.better ? pairsIn(scenario, peers) : []).flatMap(({ side, to }) => {
    const ratio = spreadOfQuiet(ratiosOf(samples(side), samples(to)))
    return ratio ? [{ side, to, ratio }] : []
  })
  return {
    scenario: scenario.id,
    figure,
    isOfPeers: !scenario.variants,
    sides: Object.fromEntries(sides),
    ratios,
  }
}

function summarizeCores(scenario: string, side: string, results: readonly Result[]): CoresSummary {
  const medians = <Name extends string>(
    names: readonly Name[],
    pick: (result: Result, name: Name) => number | undefined,
  ) =>
    Object.fromEntries(
      names.flatMap(name => {
        const spread = spreadOfQuiet(samplesOf(results, result => pick(result, name)).values())
        return spread ? [[name, spread.median]] : []
      }),
    ) as Partial<Record<Name, number>>
  const rounds = countingResults(results)
  return {
    scenario,
    side,
    cores: medians([...PARTS, 'others'], ({ cores }, name) => cores[name]),
    usPerJob: medians(PARTS, ({ cores, seconds, jobs }, name) => {
      const used = cores[name]
      return used === undefined ? undefined : (used * seconds * 1e6) / jobs
    }),
    rounds: rounds.length,
    noisyRounds: rounds.filter(round => round.isNoisy).length,
  }
}
