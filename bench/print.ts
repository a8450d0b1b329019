/** Owns how figures look on a terminal. */
import { NOISE_CORES } from './cpu.ts'
import { OURS, REFERENCE } from './peers/known-peers.ts'
import type { Result } from './rounds.ts'
import type { Figure, Scenario } from './scenario.ts'
import type { Spread } from './statistics.ts'
import type { FigureSummary, Summary } from './summary.ts'

function formatFigure(value: number, unit: Figure['unit']): string {
  if (unit === 'ms') return value.toFixed(value < 1 ? 3 : value < 100 ? 2 : 0)
  if (unit === '%') return value.toFixed(1)
  return Math.round(value).toLocaleString('en-US')
}

const formatCores = (cores: number | undefined) => cores?.toFixed(2) ?? '?'

/** One line for one measurement. */
export function formatResult(result: Result, scenario: Scenario): string {
  const figures = scenario.figures.flatMap(({ name, unit }) => {
    const value = result.figures[name]
    return value === undefined ? [] : [`${name} ${formatFigure(value, unit)} ${unit}`]
  })
  const { postgres, producer, workers, others } = result.cores
  const cores = `postgres ${formatCores(postgres)}  producer ${formatCores(producer)}  workers ${formatCores(workers)}  others ${formatCores(others)}`
  return `${String(result.round).padStart(2)}  ${scenario.id.padEnd(10)} ${result.side.padEnd(16)} ${figures.join(', ').padEnd(18)}  | ${cores}${result.isNoisy ? '  noisy' : ''}`
}

export function formatSummary(summary: Summary, peers: readonly string[]): string {
  // Peers are the same in all scenarios; the variants of longshore are each scenario's own.
  const isOfPeers = ({ sides }: FigureSummary) => peers.every(peer => peer in sides)
  const [ofPeers, ofVariants] = [
    summary.figures.filter(isOfPeers),
    summary.figures.filter(line => !isOfPeers(line)),
  ]
  const figures = [
    ...(ofPeers.length > 0 ? [formatPeers(ofPeers, peers)] : []),
    ...(ofVariants.length > 0 ? [formatVariants(ofVariants)] : []),
  ].join('\n\n')
  const cores = formatTable(
    [
      'CPU',
      'of',
      'cores: postgres',
      'producer',
      'workers',
      'others',
      'µs/job: postgres',
      'producer',
      'workers',
      '',
    ],
    summary.cores.map(({ scenario, side, cores, usPerJob, noisyRounds, rounds }) => [
      scenario,
      side,
      ...[cores.postgres, cores.producer, cores.workers, cores.others].map(formatCores),
      ...[usPerJob.postgres, usPerJob.producer, usPerJob.workers].map(us => us?.toFixed(1) ?? '?'),
      noisyRounds > 0 ? `noisy: ${noisyRounds} of ${rounds}` : '',
    ]),
  )
  return `${figures}\n\n${cores}\n
Medians over the rounds (least–most); ratios are taken within each round. Noisy: others used more than ${NOISE_CORES} core.`
}

function formatPeers(lines: readonly FigureSummary[], peers: readonly string[]): string {
  const hasRatio = lines.some(({ ratios }) => ratios[OURS])
  return formatTable(
    ['scenario', 'figure', ...peers, ...(hasRatio ? [`${OURS} : ${REFERENCE}`] : [])],
    lines.map(({ scenario, figure, sides, ratios }) => [
      scenario,
      `${figure.name}, ${figure.unit}`,
      ...peers.map(peer => formatSpread(sides[peer], value => formatFigure(value, figure.unit))),
      ...(hasRatio ? [formatRatio(ratios[OURS], figure)] : []),
    ]),
  )
}

/** A line for each variant; the last one is what the others are compared with. */
function formatVariants(lines: readonly FigureSummary[]): string {
  return formatTable(
    ['scenario', 'figure', 'variant', 'value', 'ratio to the last variant'],
    lines.flatMap(({ scenario, figure, sides, ratios }) =>
      Object.entries(sides).flatMap(([side, spread]) =>
        Number.isNaN(spread.median)
          ? []
          : [
              [
                scenario,
                `${figure.name}, ${figure.unit}`,
                side,
                formatSpread(spread, value => formatFigure(value, figure.unit)),
                formatRatio(ratios[side], figure),
              ],
            ],
      ),
    ),
  )
}

function formatSpread(spread: Spread | undefined, format: (value: number) => string): string {
  if (!spread) return ''
  const { median, min, max } = spread
  return min === max ? format(median) : `${format(median)} (${format(min)}–${format(max)})`
}

function formatRatio(ratio: Spread | undefined, figure: Figure): string {
  if (!ratio) return ''
  const text = formatSpread(ratio, value =>
    value.toFixed(value < 0.1 ? 4 : value < 2 ? 3 : value < 10 ? 2 : 1),
  )
  return figure.better === 'lower' ? `${text}, less is better` : text
}

export function formatTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((title, i) => Math.max(title.length, ...rows.map(row => (row[i] ?? '').length)))
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd()
  return [line(head), widths.map(width => '-'.repeat(width)).join('  '), ...rows.map(line)].join('\n')
}
