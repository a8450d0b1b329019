/** Owns what two builds beside each other are compared by: the scenario's figures, and CPU, WAL and transactions of a job. */
import { PARTS } from '../measure/cpu.ts'
import type { Figure, Measurement } from '../measure/measurement.ts'
import { spreadOf } from '../measure/statistics.ts'
import { formatFigure } from '../report/format.ts'
import type { Table } from '../report/tables.ts'
import type { Scenario } from '../scenarios/scenario.ts'
import { type BesidePair, BUILDS, type Build } from './run-pairs.ts'
import { CONFIDENCE, type Interval, signInterval } from './sign-interval.ts'

export interface Comparison {
  readonly scenario: string
  readonly side: string
  readonly what: string
  readonly unit: Figure['unit']
  readonly better: NonNullable<Figure['better']>
  readonly medians: Readonly<Record<Build, number>>
  /** here : there, within each pair. */
  readonly ratio: Interval
  readonly verdict: 'better' | 'worse' | 'no difference seen' | 'too few pairs'
}

interface Quantity extends Pick<Comparison, 'what' | 'unit' | 'better'> {
  of(measured: Measurement): number | undefined
}

/** Of these parts the harness is no part. */
const COUNTED = PARTS.filter(part => part !== 'producer')

const cpuOf = ({ cores, seconds, jobs }: Measurement, parts: readonly (typeof PARTS)[number][]) => {
  const used = parts.flatMap(part => cores[part] ?? [])
  return used.length === 0 ? undefined : (used.reduce((sum, one) => sum + one) * seconds * 1e6) / jobs
}

const perJob = (what: string, unit: Figure['unit'], of: Quantity['of']): Quantity => ({
  what,
  unit,
  better: 'lower',
  of,
})

const OF_EACH_JOB: readonly Quantity[] = [
  perJob('CPU a job', 'µs', measured => cpuOf(measured, COUNTED)),
  ...COUNTED.map(part => perJob(`… ${part}`, 'µs', measured => cpuOf(measured, [part]))),
  perJob('WAL a job', 'bytes', ({ writes, jobs }) => writes && writes.walBytes / jobs),
  perJob('transactions', '/1,000 jobs', ({ writes, jobs }) => writes && (1000 * writes.transactions) / jobs),
]

const ofFigure = ({ name, unit, better }: Figure): Quantity[] =>
  better ? [{ what: name, unit, better, of: ({ figures }) => figures[name] }] : []

export function compare(scenarios: readonly Scenario[], pairs: readonly BesidePair[]): Comparison[] {
  return scenarios.flatMap(scenario => {
    const own = pairs.filter(pair => pair.scenario === scenario.id)
    const quantities = [...scenario.figures.flatMap(ofFigure), ...OF_EACH_JOB]
    return [...new Set(own.map(({ side }) => side))].flatMap(side =>
      quantities.flatMap(quantity =>
        compareBy(
          quantity,
          own.filter(pair => pair.side === side),
        ),
      ),
    )
  })
}

function compareBy({ of, ...quantity }: Quantity, pairs: readonly BesidePair[]): Comparison[] {
  const [first] = pairs
  const samples = pairs.flatMap(({ measured }) => {
    const [here, there] = BUILDS.map(build => of(measured[build]))
    // A part that used nothing has no ratio: the relay in direct mode.
    return here && there ? [{ here, there }] : []
  })
  if (!first || samples.length === 0) return []
  const ratio = signInterval(samples.map(({ here, there }) => here / there))
  const median = (build: Build) => spreadOf(samples.map(sample => sample[build])).median
  return [
    {
      scenario: first.scenario,
      side: first.side,
      ...quantity,
      medians: { here: median('here'), there: median('there') },
      ratio,
      verdict: verdictOn(ratio, quantity.better),
    },
  ]
}

function verdictOn({ from, to, confidence }: Interval, better: Comparison['better']): Comparison['verdict'] {
  if (confidence < CONFIDENCE) return 'too few pairs'
  if (from <= 1 && to >= 1) return 'no difference seen'
  return to < 1 === (better === 'lower') ? 'better' : 'worse'
}

export function comparisonTable(comparisons: readonly Comparison[]): Table {
  const ratio = (value: number) => value.toFixed(3)
  return {
    head: ['scenario', 'of', 'what', 'here', 'there', 'here : there', 'interval', ''],
    rows: comparisons.map(({ scenario, side, what, unit, better, medians, ratio: is, verdict }) => [
      scenario,
      side,
      `${what}, ${unit}${better === 'lower' ? '' : ', more is better'}`,
      formatFigure(medians.here, unit),
      formatFigure(medians.there, unit),
      ratio(is.median),
      `${ratio(is.from)}–${ratio(is.to)} (${(is.confidence * 100).toFixed(0)} %)`,
      verdict,
    ]),
  }
}
