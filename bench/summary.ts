/** Owns what a run says in the end: for each figure the spread over the rounds, and the ratio within each round. */
import { type Cores, PARTS, type Part } from './cpu.ts'
import type { Result, Unmeasured } from './rounds.ts'
import type { Figure, Scenario } from './scenario.ts'
import { type Pair, pairsIn, sidesOf } from './sides.ts'
import { type Spread, spreadOf } from './statistics.ts'

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
  noisyRounds: number
}

export interface Summary {
  figures: FigureSummary[]
  cores: CoresSummary[]
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
    unmeasured,
  }
}

function summarizeFigure(
  scenario: Scenario,
  figure: Figure,
  peers: readonly string[],
  resultsOf: (side: string) => readonly Result[],
): FigureSummary {
  /** By round: not every side has been measured in each. */
  const valuesOf = (side: string) =>
    new Map(
      resultsOf(side).flatMap(({ round, figures }) => {
        const value = figures[figure.name]
        return value === undefined ? [] : [[round, value] as const]
      }),
    )
  const sides = sidesOf(scenario, peers).flatMap(side => {
    const values = valuesOf(side)
    return values.size === 0 ? [] : [[side, spreadOf([...values.values()])] as const]
  })
  const ratios = (figure.better ? pairsIn(scenario, peers) : []).flatMap(({ side, to }) => {
    const theirs = valuesOf(to)
    const inRounds = [...valuesOf(side)].flatMap(([round, value]) => {
      const their = theirs.get(round)
      return their === undefined ? [] : [value / their]
    })
    return inRounds.length === 0 ? [] : [{ side, to, ratio: spreadOf(inRounds) }]
  })
  return {
    scenario: scenario.id,
    figure,
    isOfPeers: !scenario.variants,
    sides: Object.fromEntries(sides),
    ratios,
  }
}

function summarizeCores(scenario: string, side: string, rounds: readonly Result[]): CoresSummary {
  const medians = <Name extends string>(
    names: readonly Name[],
    pick: (round: Result, name: Name) => number | undefined,
  ) =>
    Object.fromEntries(
      names.flatMap(name => {
        const known = rounds.map(round => pick(round, name)).filter(value => value !== undefined)
        return known.length === 0 ? [] : [[name, spreadOf(known).median]]
      }),
    ) as Partial<Record<Name, number>>
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
