/** Owns how figures look on a terminal. */
import { type Cores, NOISE_CORES, PARTS, type Part } from './cpu.ts'
import type { Result, Unmeasured } from './rounds.ts'
import type { Figure, Scenario } from './scenario.ts'
import { pairsOfPeers } from './sides.ts'
import type { Spread } from './statistics.ts'
import type { CoresSummary, FigureSummary, Summary } from './summary.ts'

function formatFigure(value: number, unit: Figure['unit']): string {
  if (unit === 'ms') return value.toFixed(value < 1 ? 3 : value < 100 ? 2 : 0)
  if (unit === '×') return value.toFixed(2)
  if (unit === '%' || unit === 'µs' || unit === '/s' || unit === 'MB') return value.toFixed(1)
  return Math.round(value).toLocaleString('en-US')
}

/** Not every peer has these; the other parts are always there, though perhaps on another machine. */
const isOptional = (part: keyof Cores) => part === 'redis' || part === 'relay'

const formatPart = (part: keyof Cores, used: number | undefined, digits: number) =>
  used?.toFixed(digits) ?? (isOptional(part) ? '' : '?')

/** One line for one measurement. */
export function formatResult(result: Result, scenario: Scenario): string {
  const figures = scenario.figures.flatMap(({ name, unit }) => {
    const value = result.figures[name]
    return value === undefined ? [] : [`${name} ${formatFigure(value, unit)} ${unit}`]
  })
  const cores = [...PARTS, 'others' as const]
    .filter(part => !isOptional(part) || result.cores[part] !== undefined)
    .map(part => `${part} ${formatPart(part, result.cores[part], 2)}`)
    .join('  ')
  return `${String(result.round).padStart(2)}  ${scenario.id.padEnd(10)} ${result.side.padEnd(16)} ${figures.join(', ').padEnd(18)}  | ${cores}${result.isNoisy ? '  noisy' : ''}`
}

export const formatUnmeasured = ({ round, scenario, side, reason }: Unmeasured): string =>
  `${String(round).padStart(2)}  ${scenario.padEnd(10)} ${side.padEnd(16)} not measured: ${reason}`

export function formatSummary(summary: Summary, peers: readonly string[]): string {
  const { figures, unmeasured } = summary
  // Peers are the same in all scenarios; the variants of longshore are each scenario's own.
  const ofPeers = figures.filter(({ isOfPeers }) => isOfPeers)
  const ofVariants = figures.filter(({ isOfPeers }) => !isOfPeers)
  return [
    ...(ofPeers.length > 0 ? [formatPeers(ofPeers, peers), ...formatRatios(ofPeers, peers)] : []),
    ...(ofVariants.length > 0 ? [formatVariants(ofVariants)] : []),
    ...(unmeasured.length > 0 ? [unmeasured.map(formatUnmeasured).join('\n')] : []),
    formatCpu(summary.cores),
    `Medians over the rounds (least–most); ratios are taken within each round. Noisy: others used more than ${NOISE_CORES} core.`,
  ].join('\n\n')
}

function formatCpu(lines: readonly CoresSummary[]): string {
  const parts = PARTS.filter(
    part => !isOptional(part) || lines.some(({ cores }) => cores[part] !== undefined),
  )
  const titled = (unit: string, names: readonly string[]) =>
    names.map((name, i) => (i === 0 ? `${unit}: ${name}` : name))
  return formatTable(
    ['CPU', 'of', ...titled('cores', [...parts, 'others']), ...titled('µs/job', parts), ''],
    lines
      .filter(({ rounds }) => rounds > 0)
      .map(({ scenario, side, cores, usPerJob, noisyRounds, rounds }) => [
        scenario,
        side,
        ...[...parts, 'others' as const].map(part => formatPart(part, cores[part], 2)),
        ...parts.map((part: Part) => formatPart(part, usPerJob[part], 1)),
        noisyRounds > 0 ? `noisy: ${noisyRounds} of ${rounds}` : '',
      ]),
  )
}

function formatPeers(lines: readonly FigureSummary[], peers: readonly string[]): string {
  return formatTable(
    ['scenario', 'figure', ...peers],
    lines.map(({ scenario, figure, sides }) => [
      scenario,
      `${figure.name}, ${figure.unit}`,
      ...peers.map(peer =>
        sides[peer] ? formatSpread(sides[peer], value => formatFigure(value, figure.unit)) : 'not measured',
      ),
    ]),
  )
}

/** A column for each pair; nothing when there is none. */
function formatRatios(lines: readonly FigureSummary[], peers: readonly string[]): string[] {
  const pairs = pairsOfPeers(peers)
  if (pairs.length === 0) return []
  const table = formatTable(
    ['ratio', 'figure', ...pairs.map(({ side, to }) => `${side} : ${to}`)],
    lines
      .filter(({ figure }) => figure.better)
      .map(({ scenario, figure, ratios }) => [
        scenario,
        figure.better === 'lower' ? `${figure.name}, less is better` : figure.name,
        ...pairs.map(
          pair =>
            formatRatio(ratios.find(({ side, to }) => side === pair.side && to === pair.to)?.ratio) ||
            'not measured',
        ),
      ]),
  )
  return [table]
}

/** A line for each variant; the last one is what the others are compared with. */
function formatVariants(lines: readonly FigureSummary[]): string {
  return formatTable(
    ['scenario', 'figure', 'variant', 'value', 'ratio to the last variant'],
    lines.flatMap(({ scenario, figure, sides, ratios }) =>
      Object.entries(sides).map(([side, spread]) => {
        const ratio = formatRatio(ratios.find(one => one.side === side)?.ratio)
        return [
          scenario,
          `${figure.name}, ${figure.unit}`,
          side,
          formatSpread(spread, value => formatFigure(value, figure.unit)),
          ratio && figure.better === 'lower' ? `${ratio}, less is better` : ratio,
        ]
      }),
    ),
  )
}

function formatSpread(spread: Spread, format: (value: number) => string): string {
  const { median, min, max } = spread
  return min === max ? format(median) : `${format(median)} (${format(min)}–${format(max)})`
}

const formatRatio = (ratio: Spread | undefined): string =>
  ratio
    ? formatSpread(ratio, value => value.toFixed(value < 0.1 ? 4 : value < 2 ? 3 : value < 10 ? 2 : 1))
    : ''

export function formatTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((title, i) => Math.max(title.length, ...rows.map(row => (row[i] ?? '').length)))
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd()
  return [line(head), widths.map(width => '-'.repeat(width)).join('  '), ...rows.map(line)].join('\n')
}
