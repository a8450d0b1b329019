/** Owns what became of a load in each quarter of its time: how many jobs were done a second, how late, and what they cost. */
import { costOf } from '../measure/cost.ts'
import type { Cores } from '../measure/cpu.ts'
import type { Figure } from '../measure/measurement.ts'
import { quantile } from '../measure/statistics.ts'

const QUARTERS = [1, 2, 3, 4] as const

const quarterFigures = (what: string, unit: Figure['unit']): Figure[] =>
  QUARTERS.map(n => ({ name: `${what} ${n}`, unit }))

const RATE_RATIO = { name: 'rate, last : first', unit: '×', better: 'higher', isHeadline: true } as const
/** The one to look at on a machine that is shared. */
const COST_RATIO = { name: 'cost, last : first', unit: '×', better: 'lower', isHeadline: true } as const

export const QUARTER_FIGURES: readonly Figure[] = [
  RATE_RATIO,
  COST_RATIO,
  ...quarterFigures('rate', 'jobs/s'),
  ...quarterFigures('p50', 'ms'),
  ...quarterFigures('p99', 'ms'),
  ...quarterFigures('cost', 'µs'),
]

export interface Quarter {
  /** How many jobs had begun before it, and by its end. */
  readonly from: number
  readonly to: number
  readonly seconds: number
  readonly cores: Cores
}

/** `latenciesUs` in the order the jobs ran. */
export function figuresOfQuarters(
  quarters: readonly Quarter[],
  latenciesUs: Float64Array,
): Record<string, number> {
  const figures: Record<string, number> = {}
  for (const [at, { from, to, seconds, cores }] of quarters.entries()) {
    const own = latenciesUs.subarray(from, to)
    figures[`rate ${at + 1}`] = (to - from) / seconds
    figures[`p50 ${at + 1}`] = quantile(own, 0.5) / 1000
    figures[`p99 ${at + 1}`] = quantile(own, 0.99) / 1000
    figures[`cost ${at + 1}`] = costOf({ jobs: to - from, seconds, cores })
  }
  const lastToFirst = (what: string) => (figures[`${what} 4`] ?? 0) / (figures[`${what} 1`] ?? 0)
  figures[RATE_RATIO.name] = lastToFirst('rate')
  figures[COST_RATIO.name] = lastToFirst('cost')
  return figures
}
