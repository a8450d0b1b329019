/** Owns what a run says in the end: for each figure the spread over the rounds, and the ratio within each round. */
import type { Cores } from './cpu.ts'
import { OURS, REFERENCE } from './peers/known-peers.ts'
import type { Result } from './rounds.ts'
import type { Figure, Scenario } from './scenario.ts'
import { type Spread, spreadOf } from './statistics.ts'

export interface FigureSummary {
  scenario: string
  figure: Figure
  peers: Record<string, Spread>
  /** Ours : the reference, of the same round. Only ratios within a round mean something. */
  ratio?: Spread
}

export interface CoresSummary {
  scenario: string
  peer: string
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
  const of = (scenario: Scenario, peer: string) =>
    results.filter(result => result.scenario === scenario.id && result.peer === peer)

  const figures: FigureSummary[] = scenarios.flatMap(scenario =>
    scenario.figures.map(figure => {
      const values = (peer: string) =>
        of(scenario, peer).map(result => result.figures[figure.name] ?? Number.NaN)
      const summary: FigureSummary = {
        scenario: scenario.id,
        figure,
        peers: Object.fromEntries(peers.map(peer => [peer, spreadOf(values(peer))])),
      }
      if (figure.better && peers.includes(OURS) && peers.includes(REFERENCE)) {
        const theirs = values(REFERENCE)
        summary.ratio = spreadOf(values(OURS).map((our, i) => our / (theirs[i] ?? Number.NaN)))
      }
      return summary
    }),
  )

  const cores: CoresSummary[] = scenarios.flatMap(scenario =>
    peers.map(peer => {
      const rounds = of(scenario, peer)
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
        peer,
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
