/** Owns what became of a load in each quarter of its time: how many jobs were done a second, and how late they began. */
import type { Figure } from './scenario.ts'
import { quantile } from './statistics.ts'

const QUARTERS = [1, 2, 3, 4] as const

const quarterFigures = (what: string, unit: Figure['unit']): Figure[] =>
  QUARTERS.map(n => ({ name: `${what} ${n}`, unit }))

export const LAST_TO_FIRST = { name: 'rate, last : first', unit: '×', better: 'higher' } as const

export const QUARTER_FIGURES: readonly Figure[] = [
  LAST_TO_FIRST,
  ...quarterFigures('rate', 'jobs/s'),
  ...quarterFigures('p50', 'ms'),
  ...quarterFigures('p99', 'ms'),
]

/** How many jobs had begun at the bounds of the quarters: five of them. */
export interface Bound {
  readonly atMs: number
  readonly ran: number
}

/** `latenciesUs` in the order the jobs ran. */
export function figuresOfQuarters(
  bounds: readonly Bound[],
  latenciesUs: Float64Array,
): Record<string, number> {
  const figures: Record<string, number> = {}
  for (const n of QUARTERS) {
    const [from, to] = [bounds[n - 1], bounds[n]]
    if (!from || !to) throw new Error('a quarter has two bounds')
    const own = latenciesUs.subarray(from.ran, to.ran)
    figures[`rate ${n}`] = (to.ran - from.ran) / ((to.atMs - from.atMs) / 1000)
    figures[`p50 ${n}`] = quantile(own, 0.5) / 1000
    figures[`p99 ${n}`] = quantile(own, 0.99) / 1000
  }
  figures[LAST_TO_FIRST.name] = (figures['rate 4'] ?? 0) / (figures['rate 1'] ?? 0)
  return figures
}
