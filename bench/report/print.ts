/** Owns how a run looks on a terminal. */
import { NOISE_CORES, PARTS } from '../measure/cpu.ts'
import type { Result, Unmeasured } from '../run/rounds.ts'
import type { Scenario } from '../scenarios/scenario.ts'
import type { Summary } from '../summary/summary.ts'
import { formatFigure } from './format.ts'
import { cpuTable, figureTables, formatPart, goalsTable, isOptional, type Table } from './tables.ts'

export const HOW_TO_READ = `Medians over the rounds (least–most), from six rounds on [95 % interval]; ratios are taken within each round. Noisy: others used more than ${NOISE_CORES} core. A noisy measurement is made once more, unless it takes long; noisy ones count only where there is no quiet one.`

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
  return `${String(result.round).padStart(2)}  ${scenario.id.padEnd(10)} ${result.side.padEnd(17)} ${figures.join(', ').padEnd(18)}  | ${cores}${result.isNoisy ? '  noisy' : ''}`
}

export const formatUnmeasured = ({ round, scenario, side, reason }: Unmeasured): string =>
  `${String(round).padStart(2)}  ${scenario.padEnd(10)} ${side.padEnd(17)} not measured: ${reason}`

export function formatSummary(
  summary: Summary,
  scenarios: readonly Scenario[],
  peers: readonly string[],
): string {
  const { goals, unmeasured } = summary
  return [
    ...figureTables(summary, scenarios, peers).map(formatTable),
    ...(unmeasured.length > 0 ? [unmeasured.map(formatUnmeasured).join('\n')] : []),
    formatTable(cpuTable(summary.cores)),
    ...(goals.length > 0 ? [formatTable(goalsTable(goals))] : []),
    HOW_TO_READ,
  ].join('\n\n')
}

export function formatTable({ head, rows }: Table): string {
  const widths = head.map((title, i) => Math.max(title.length, ...rows.map(row => (row[i] ?? '').length)))
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd()
  return [line(head), widths.map(width => '-'.repeat(width)).join('  '), ...rows.map(line)].join('\n')
}
