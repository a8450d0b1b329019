/** Owns which charts a run gets: one for each scenario, of its headline figures, the best peer first; variants stay in order. */

import type { Figure } from '../measure/measurement.ts'
import { isOurs } from '../peers/known-peers.ts'
import { peerOf } from '../run/sides.ts'
import type { Scenario } from '../scenarios/scenario.ts'
import type { Summary } from '../summary/summary.ts'
import { formatFigure } from './format.ts'
import { type Bar, drawChart, type Panel } from './svg-chart.ts'

export interface Chart {
  readonly scenario: Scenario
  readonly svg: string
}

export function drawCharts(scenarios: readonly Scenario[], summary: Summary): Chart[] {
  return scenarios.flatMap(scenario => {
    const panels = headlinesOf(scenario).flatMap(figure => panelOf(scenario, figure, summary))
    return panels.length === 0 ? [] : [{ scenario, svg: drawChart(panels) }]
  })
}

function headlinesOf({ figures }: Scenario): readonly Figure[] {
  const marked = figures.filter(({ isHeadline }) => isHeadline)
  return marked.length > 0 ? marked : figures.slice(0, 1)
}

function panelOf(scenario: Scenario, figure: Figure, { figures, cores }: Summary): Panel[] {
  const line = figures.find(one => one.scenario === scenario.id && one.figure.name === figure.name)
  const isNoisy = (side: string) =>
    cores.some(one => one.scenario === scenario.id && one.side === side && one.noisyRounds === one.rounds)
  const bars = Object.entries(line?.sides ?? {}).map(
    ([side, spread]): Bar => ({
      label: isNoisy(side) ? `${side} (noisy)` : side,
      spread,
      kind: side === 'floor' ? 'yardstick' : isOurs(peerOf(scenario, side)) ? 'ours' : 'peer',
    }),
  )
  if (bars.length === 0) return []
  const direction = figure.better === 'lower' ? -1 : 1
  return [
    {
      title: `${scenario.question}: ${figure.name}, ${figure.unit}${figure.better === 'lower' ? ', less is better' : ''}`,
      isLogarithmic: figure.unit === 'ms',
      bars: scenario.variants ? bars : bars.sort((a, b) => direction * (b.spread.median - a.spread.median)),
      format: value =>
        figure.unit === 'ms' ? String(Number(value.toPrecision(3))) : formatFigure(value, figure.unit),
    },
  ]
}
