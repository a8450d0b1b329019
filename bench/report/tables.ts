/** Owns which tables tell the summary of a run: what stands in their rows and columns, not how they are drawn. */

import { type Cores, PARTS, type Part } from '../measure/cpu.ts'
import { isOurs } from '../peers/known-peers.ts'
import { standsFor } from '../run/sides.ts'
import type { Scenario } from '../scenarios/scenario.ts'
import type { Verdict } from '../summary/check-goals.ts'
import type { CoresSummary, FigureSummary, Summary } from '../summary/summary.ts'
import { formatFigure, formatRatio, formatSpread } from './format.ts'

export interface Table {
  readonly head: readonly string[]
  readonly rows: readonly (readonly string[])[]
}

/** Not every peer has these; the other parts are always there, though perhaps on another machine. */
export const isOptional = (part: keyof Cores) => part === 'redis' || part === 'relay'

export const formatPart = (part: keyof Cores, used: number | undefined, digits: number) =>
  used?.toFixed(digits) ?? (isOptional(part) ? '' : '?')

/** Figures first, then ratios: the same peers in all scenarios, while variants of longshore are each scenario's own. */
export function figureTables(
  { figures }: Summary,
  scenarios: readonly Scenario[],
  peers: readonly string[],
): Table[] {
  const ofPeers = figures.filter(({ isOfPeers }) => isOfPeers)
  const ofVariants = figures.filter(({ isOfPeers }) => !isOfPeers)
  return [
    ...(ofPeers.length > 0 ? [peersTable(ofPeers, scenarios, peers)] : []),
    ...(ofPeers.length > 0 ? peers.filter(isOurs).map(ours => ratiosTable(ofPeers, ours)) : []),
    ...(ofVariants.length > 0 ? [variantsTable(ofVariants)] : []),
  ].filter(({ head, rows }) => rows.length > 0 && head.length > 2)
}

function peersTable(
  lines: readonly FigureSummary[],
  scenarios: readonly Scenario[],
  peers: readonly string[],
): Table {
  const insteadOf = (id: string, peer: string) => {
    const scenario = scenarios.find(one => one.id === id)
    const other = scenario && standsFor(scenario, peer, peers)
    return other === undefined ? 'not measured' : `as ${other}`
  }
  return {
    head: ['scenario', 'figure', ...peers],
    rows: lines.map(({ scenario, figure, sides }) => [
      scenario,
      `${figure.name}, ${figure.unit}`,
      ...peers.map(peer =>
        sides[peer]
          ? formatSpread(sides[peer], value => formatFigure(value, figure.unit))
          : insteadOf(scenario, peer),
      ),
    ]),
  }
}

/** A column for each whom this longshore is compared with. */
function ratiosTable(lines: readonly FigureSummary[], ours: string): Table {
  const compared = lines.filter(({ figure }) => figure.better)
  const own = (line: FigureSummary) => line.ratios.filter(({ side }) => side === ours)
  const others = [...new Set(compared.flatMap(line => own(line).map(({ to }) => to)))]
  return {
    head: [`${ours} :`, 'figure', ...others],
    rows: compared.map(line => [
      line.scenario,
      line.figure.better === 'lower' ? `${line.figure.name}, less is better` : line.figure.name,
      ...others.map(other => formatRatio(own(line).find(({ to }) => to === other)?.ratio)),
    ]),
  }
}

/** A line for each variant; the last one is what the others are compared with. */
function variantsTable(lines: readonly FigureSummary[]): Table {
  return {
    head: ['scenario', 'figure', 'variant', 'value', 'ratio to the last variant'],
    rows: lines.flatMap(({ scenario, figure, sides, ratios }) =>
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
  }
}

export function goalsTable(verdicts: readonly Verdict[]): Table {
  return {
    head: ['goal', 'scenario', 'figure', 'of', 'to', 'asked', 'is', ''],
    rows: verdicts.map(({ goal, ratio, isReached, missing }) => [
      goal.id,
      goal.scenario,
      typeof goal.figure === 'string' ? goal.figure : `CPU of ${goal.figure.cores}`,
      goal.side,
      goal.to === undefined ? '' : typeof goal.to === 'string' ? goal.to : goal.to.says,
      'atLeast' in goal.asked ? `≥ ${goal.asked.atLeast}` : `≤ ${goal.asked.atMost}`,
      formatRatio(ratio),
      `${isReached ? 'reached' : 'missed'}${missing.length > 0 ? `, without ${missing.join(', ')}` : ''}`,
    ]),
  }
}

export function cpuTable(lines: readonly CoresSummary[]): Table {
  const parts = PARTS.filter(
    part => !isOptional(part) || lines.some(({ cores }) => cores[part] !== undefined),
  )
  const titled = (unit: string, names: readonly string[]) =>
    names.map((name, i) => (i === 0 ? `${unit}: ${name}` : name))
  return {
    head: ['CPU', 'of', ...titled('cores', [...parts, 'others']), ...titled('µs/job', parts), ''],
    rows: lines
      .filter(({ rounds }) => rounds > 0)
      .map(({ scenario, side, cores, usPerJob, noisyRounds, rounds }) => [
        scenario,
        side,
        ...[...parts, 'others' as const].map(part => formatPart(part, cores[part], 2)),
        ...parts.map((part: Part) => formatPart(part, usPerJob[part], 1)),
        noisyRounds > 0 ? `noisy: ${noisyRounds} of ${rounds}` : '',
      ]),
  }
}
