/** Owns what a run says in the end: for each figure the spread over the rounds, and the ratio within each round. */
import type { Cores } from './cpu.ts'
import type { Result } from './rounds.ts'
import type { Figure, Scenario } from './scenario.ts'
import { comparedIn, sidesOf } from './sides.ts'
import { type Spread, spreadOf } from './statistics.ts'

export interface FigureSummary {
  scenario: string
  figure: Figure
  /** By peer or variant. */
  sides: Record<string, Spread>
  /** To the reference, of the same round. Only ratios within a round mean something. */
  ratios: Record<string, Spread>
}

export interface CoresSummary {
  scenario: string
  side: string
  /** Medians. */
  cores: Cores
  /** CPU time of all parts for one job: on a machine that is shared it moves less than the rate does. */
  usPerJob: { postgres?: number; producer: number; workers: number }
  rounds: number
  noisyRounds: number
}

export function summarize(
  scenarios: readonly Scenario[],
  peers: readonly string[],
  results: readonly Result[],
) {
  const of = (scenario: Scenario, side: string) =>
    results.filter(result => result.scenario === scenario.id && result.side === side)

  const figures: FigureSummary[] = scenarios.flatMap(scenario =>
    scenario.figures.map(figure => {
      const values = (side: string) =>
        of(scenario, side).map(result => result.figures[figure.name] ?? Number.NaN)
      const spreads = (sides: readonly string[], pick: (side: string) => number[]) =>
        Object.fromEntries(sides.map(side => [side, spreadOf(pick(side))]))
      const { compared, reference } = comparedIn(scenario, peers)
      const theirs = values(reference)
      return {
        scenario: scenario.id,
        figure,
        sides: spreads(sidesOf(scenario, peers), values),
        ratios: spreads(figure.better ? compared : [], side =>
          values(side).map((our, i) => our / (theirs[i] ?? Number.NaN)),
        ),
      }
    }),
  )

  const cores: CoresSummary[] = scenarios.flatMap(scenario =>
    sidesOf(scenario, peers).map(side => {
      const rounds = of(scenario, side)
      const median = (pick: (round: Result) => number | undefined) => {
        const known = rounds.map(pick).filter(value => value !== undefined)
        return known.length === 0 ? undefined : spreadOf(known).median
      }
      const part = (name: keyof Cores) => median(round => round.cores[name])
      const partUs = (name: keyof Cores) =>
        median(({ cores, seconds, jobs }) => {
          const used = cores[name]
          return used === undefined ? undefined : (used * seconds * 1e6) / jobs
        })
      const [postgres, postgresUs, others] = [part('postgres'), partUs('postgres'), part('others')]
      return {
        scenario: scenario.id,
        side,
        cores: {
          producer: part('producer') ?? 0,
          workers: part('workers') ?? 0,
          ...(postgres === undefined ? {} : { postgres }),
          ...(others === undefined ? {} : { others }),
        },
        usPerJob: {
          producer: partUs('producer') ?? 0,
          workers: partUs('workers') ?? 0,
          ...(postgresUs === undefined ? {} : { postgres: postgresUs }),
        },
        rounds: rounds.length,
        noisyRounds: rounds.filter(round => round.isNoisy).length,
      }
    }),
  )
  return { figures, cores }
}

export type Summary = ReturnType<typeof summarize>
