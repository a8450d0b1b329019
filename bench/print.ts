/** Owns how figures look on a terminal. */
import { NOISE_CORES } from './cpu.ts'
import { OURS, REFERENCE } from './peers/known-peers.ts'
import type { Result } from './rounds.ts'
import type { Figure, Scenario } from './scenario.ts'
import type { Spread } from './statistics.ts'
import type { Summary } from './summary.ts'

function formatFigure(value: number, unit: Figure['unit']): string {
  if (unit === 'ms') return value.toFixed(value < 100 ? 2 : 0)
  return Math.round(value).toLocaleString('en-US')
}

const formatCores = (cores: number | undefined) => cores?.toFixed(2) ?? '?'

/** One line for one measurement. */
export function formatResult(result: Result, scenario: Scenario): string {
  const figures = scenario.figures.map(
    figure =>
      `${figure.name} ${formatFigure(result.figures[figure.name] ?? Number.NaN, figure.unit)} ${figure.unit}`,
  )
  const { postgres, producer, workers, others } = result.cores
  const cores = `postgres ${formatCores(postgres)}  producer ${formatCores(producer)}  workers ${formatCores(workers)}  others ${formatCores(others)}`
  return `${String(result.round).padStart(2)}  ${scenario.id.padEnd(10)} ${result.peer.padEnd(16)} ${figures.join(', ').padEnd(18)}  | ${cores}${result.isNoisy ? '  noisy' : ''}`
}

export function formatSummary(summary: Summary, peers: readonly string[]): string {
  const hasRatio = summary.figures.some(line => line.ratio)
  const figures = formatTable(
    ['scenario', 'figure', ...peers, ...(hasRatio ? [`${OURS} : ${REFERENCE}`] : [])],
    summary.figures.map(({ scenario, figure, peers: spreads, ratio }) => [
      scenario,
      `${figure.name}, ${figure.unit}`,
      ...peers.map(peer => formatSpread(spreads[peer], value => formatFigure(value, figure.unit))),
      ...(hasRatio ? [ratio ? formatRatio(ratio, figure) : ''] : []),
    ]),
  )
  const cores = formatTable(
    [
      'CPU',
      'peer',
      'cores: postgres',
      'producer',
      'workers',
      'others',
      'µs/job: postgres',
      'producer',
      'workers',
      '',
    ],
    summary.cores.map(({ scenario, peer, cores, usPerJob, noisyRounds, rounds }) => [
      scenario,
      peer,
      ...[cores.postgres, cores.producer, cores.workers, cores.others].map(formatCores),
      ...[usPerJob.postgres, usPerJob.producer, usPerJob.workers].map(us => us?.toFixed(1) ?? '?'),
      noisyRounds > 0 ? `noisy: ${noisyRounds} of ${rounds}` : '',
    ]),
  )
  return `${figures}\n\n${cores}\n
Medians over the rounds (least–most); ratios are taken within each round. Noisy: others used more than ${NOISE_CORES} core.`
}

function formatSpread(spread: Spread | undefined, format: (value: number) => string): string {
  if (!spread) return ''
  const { median, min, max } = spread
  return min === max ? format(median) : `${format(median)} (${format(min)}–${format(max)})`
}

function formatRatio(ratio: Spread, figure: Figure): string {
  const text = formatSpread(ratio, value => value.toFixed(value < 0.1 ? 4 : value < 10 ? 2 : 1))
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
