/**
 * Owns what a job costs: CPU time of both stores, the relay and the workers, bytes of WAL, transactions. These move less than a
 * rate when the machine is shared.
 */
import type { Part } from './cpu.ts'
import type { Figure, Measurement } from './measurement.ts'

/** The producer is left out: here it is the harness as well. */
const COUNTED = ['postgres', 'redis', 'relay', 'workers'] as const satisfies readonly Part[]

export const COST = { name: 'cost', unit: 'µs', better: 'lower' } as const satisfies Figure

type Used = Pick<Measurement, 'cores' | 'seconds' | 'jobs'>

/** CPU time of these parts for one job, in µs; undefined where none of them is measured. */
function cpuOf({ cores, seconds, jobs }: Used, parts: readonly Part[]): number | undefined {
  const used = parts.flatMap(part => cores[part] ?? [])
  return used.length === 0 ? undefined : (used.reduce((sum, one) => sum + one) * seconds * 1e6) / jobs
}

export const costOf = (used: Used): number => cpuOf(used, COUNTED) ?? Number.NaN

interface CostFigure extends Figure {
  readonly better: 'lower'
  of(measured: Omit<Measurement, 'figures'>): number | undefined
}

/** All that is known of a job's cost. */
const COSTS: readonly CostFigure[] = [
  { ...COST, of: measured => cpuOf(measured, COUNTED) },
  ...COUNTED.map(
    (part): CostFigure => ({
      name: `cost: ${part}`,
      unit: 'µs',
      better: 'lower',
      of: measured => cpuOf(measured, [part]),
    }),
  ),
  {
    name: 'WAL a job',
    unit: 'bytes',
    better: 'lower',
    of: ({ writes, jobs }) => writes && writes.walBytes / jobs,
  },
  {
    name: 'transactions',
    unit: '/1,000 jobs',
    better: 'lower',
    of: ({ writes, jobs }) => writes && (1000 * writes.transactions) / jobs,
  },
]

export const COST_FIGURES: readonly (Figure & { readonly better: 'lower' })[] = COSTS.map(
  ({ name, unit, better }) => ({ name, unit, better }),
)

/** By the names of `COST_FIGURES`; a part that there is not, or that used nothing to speak of, is left out. */
export const costsOf = (measured: Omit<Measurement, 'figures'>): Record<string, number> =>
  Object.fromEntries(
    COSTS.flatMap(({ name, of }) => {
      const cost = of(measured)
      return cost ? [[name, cost] as const] : []
    }),
  )
