/** Owns what a job costs: CPU time of both stores, the relay and the workers together. It moves less than a rate when the machine is shared. */
import type { Figure, Measurement } from './measurement.ts'

export const COST = { name: 'cost', unit: 'µs', better: 'lower' } as const satisfies Figure

/** The producer is left out: here it is the harness as well. */
const PARTS = ['postgres', 'redis', 'relay', 'workers'] as const

export function costOf({ cores, seconds, jobs }: Pick<Measurement, 'cores' | 'seconds' | 'jobs'>): number {
  const used = PARTS.reduce((sum, part) => sum + (cores[part] ?? 0), 0)
  return (used * seconds * 1e6) / jobs
}
