/** Owns the report of a run in Markdown: how it was made, its charts, tables and goals. */

import type { Scenario } from '../scenarios/scenario.ts'
import { HOW_TO_READ } from './print.ts'
import type { RecordedPeer, RunRecord } from './run-record.ts'
import { cpuTable, figureTables, goalsTable, type Table } from './tables.ts'

export interface ChartFile {
  readonly scenario: Scenario
  readonly file: string
}

export function writeReport(
  name: string,
  record: RunRecord,
  scenarios: readonly Scenario[],
  charts: readonly ChartFile[],
): string {
  const { summary, results, peers } = record
  const sides = peers.map(peer => peer.name)
  const again = results.filter(({ attempt }) => attempt > 1).length
  const noisy = summary.cores.filter(({ noisyRounds }) => noisyRounds > 0)
  return [
    `# Bench: ${name}`,
    'Written by the bench, not by hand. Only ratios within one run count: machines differ, and one machine differs from hour to hour.',
    bullets([
      `\`${record.command}\`, ${record.at}, ${Math.round(record.tookSeconds / 60)} min`,
      record.machine,
      `Node ${record.node}; ${record.postgres}`,
      ...record.redis,
      `${record.sizes.rounds} ${record.sizes.rounds === 1 ? 'round' : 'rounds'}, all sides in turn in each; every job was checked to have run exactly once`,
      ...(record.leftOut.length > 0 ? [`left out: ${record.leftOut.join('; ')}`] : []),
    ]),
    HOW_TO_READ,
    noiseOf(again, noisy.length),
    ...(summary.goals.length > 0 ? ['## Goals', markdownTable(goalsTable(summary.goals))] : []),
    '## Charts',
    'Bars are medians, whiskers go from the least to the most; times on a logarithmic axis.',
    ...charts.map(({ scenario, file }) => `![${scenario.question}](${file})`),
    '## Figures',
    ...figureTables(summary, scenarios, sides).map(markdownTable),
    ...(summary.unmeasured.length > 0
      ? [
          '## Not measured',
          bullets(
            summary.unmeasured.map(one => `round ${one.round}, ${one.scenario}, ${one.side}: ${one.reason}`),
          ),
        ]
      : []),
    '## Processor time',
    markdownTable(cpuTable(summary.cores)),
    '## Who took part',
    markdownTable({
      head: ['peer', 'version', 'what it is', 'what an answer promises'],
      rows: peers.map(peer => [peer.name, peer.version, titleOf(peer), peer.durability]),
    }),
    ...settingsOf(peers),
    '',
  ].join('\n\n')
}

const titleOf = ({ title, fewerJobs }: RecordedPeer) =>
  fewerJobs === undefined
    ? title
    : `${title} (at most ${fewerJobs.toLocaleString('en-US')} jobs in drains and on the whole way)`

function settingsOf(peers: readonly RecordedPeer[]): string[] {
  const tuned = peers.filter(({ settings }) => settings !== undefined)
  if (tuned.length === 0) return []
  return [
    '## Settings of the peers',
    'The best that `npm run bench -- --sweep <peer>` found.',
    markdownTable({
      head: ['peer', 'settings', 'what the sweep said', 'candidates from'],
      rows: tuned.map(({ name, settings = {}, found = '', source = '' }) => [
        name,
        Object.entries(settings)
          .map(([key, value]) => `${key} ${value}`)
          .join(', '),
        found,
        source,
      ]),
    }),
  ]
}

function noiseOf(again: number, noisy: number): string {
  if (again === 0) return 'No measurement was noisy.'
  const left = noisy === 0 ? 'then all were quiet' : `${noisy} sides kept a noisy round, see "Processor time"`
  return `${again} ${again === 1 ? 'measurement was' : 'measurements were'} made once more because of noise; ${left}.`
}

const bullets = (lines: readonly string[]) => lines.map(line => `- ${line}`).join('\n')

export function markdownTable({ head, rows }: Table): string {
  const line = (cells: readonly string[]) =>
    `| ${cells.map(cell => cell.replaceAll('|', '\\|')).join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
}
