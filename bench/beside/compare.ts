/** Owns what two builds beside each other are compared by: the scenario's figures, and CPU, WAL and transactions of a job. */
import { COST_FIGURES, costsOf } from '../measure/cost.ts'
import type { Figure } from '../measure/measurement.ts'
import { CONFIDENCE, type Interval, signInterval, spreadOf } from '../measure/statistics.ts'
import { formatFigure } from '../report/format.ts'
import type { Table } from '../report/tables.ts'
import type { Scenario } from '../scenarios/scenario.ts'
import { type BesidePair, BUILDS, type Build } from './run-pairs.ts'

export interface Comparison {
  readonly scenario: string
  readonly side: string
  readonly figure: Compared
  readonly medians: Readonly<Record<Build, number>>
  /** here : there, within each pair. */
  readonly ratio: Interval
  readonly verdict: 'better' | 'worse' | 'no difference seen' | 'too few pairs'
}

type Compared = Figure & { readonly better: NonNullable<Figure['better']> }

/** What is told of a scenario and what its jobs cost, each figure once. */
const figuresOf = ({ figures }: Scenario): Compared[] => [
  ...figures.filter(isCompared),
  ...COST_FIGURES.filter(({ name }) => !figures.some(figure => figure.name === name)),
]

const isCompared = (figure: Figure): figure is Compared => figure.better !== undefined

export function compare(scenarios: readonly Scenario[], pairs: readonly BesidePair[]): Comparison[] {
  return scenarios.flatMap(scenario => {
    const own = pairs.filter(pair => pair.scenario === scenario.id)
    return [...new Set(own.map(({ side }) => side))].flatMap(side => {
      const ofSide = own.filter(pair => pair.side === side)
      return figuresOf(scenario).flatMap(figure => compareBy(figure, ofSide))
    })
  })
}

function compareBy({ name, unit, better }: Compared, pairs: readonly BesidePair[]): Comparison[] {
  const [first] = pairs
  const samples = pairs.flatMap(({ measured }) => {
    const [here, there] = BUILDS.map(build => ({ ...costsOf(measured[build]), ...measured[build].figures }))
    const sample = { here: here?.[name], there: there?.[name] }
    // What used nothing has no ratio: the relay in direct mode.
    return sample.here && sample.there ? [{ here: sample.here, there: sample.there }] : []
  })
  if (!first || samples.length === 0) return []
  const ratio = signInterval(samples.map(({ here, there }) => here / there))
  const median = (build: Build) => spreadOf(samples.map(sample => sample[build])).median
  return [
    {
      scenario: first.scenario,
      side: first.side,
      figure: { name, unit, better },
      medians: { here: median('here'), there: median('there') },
      ratio,
      verdict: verdictOn(ratio, better),
    },
  ]
}

function verdictOn({ from, to, confidence }: Interval, better: Compared['better']): Comparison['verdict'] {
  if (confidence < CONFIDENCE) return 'too few pairs'
  if (from <= 1 && to >= 1) return 'no difference seen'
  return to < 1 === (better === 'lower') ? 'better' : 'worse'
}

export function comparisonTable(comparisons: readonly Comparison[]): Table {
  const ratio = (value: number) => value.toFixed(3)
  return {
    head: ['scenario', 'of', 'what', 'here', 'there', 'here : there', 'interval', ''],
    rows: comparisons.map(
      ({ scenario, side, figure: { name, unit, better }, medians, ratio: is, verdict }) => [
        scenario,
        side,
        `${name}, ${unit}${better === 'lower' ? '' : ', more is better'}`,
        formatFigure(medians.here, unit),
        formatFigure(medians.there, unit),
        ratio(is.median),
        `${ratio(is.from)}–${ratio(is.to)} (${(is.confidence * 100).toFixed(0)} %)`,
        verdict,
      ],
    ),
  }
}
