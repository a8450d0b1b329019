/** Owns the tables of README and docs that hold figures: each is made from a committed record in `bench/results/`. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { PARTS, type Part } from '../measure/cpu.ts'
import type { Verdict } from '../summary/check-goals.ts'
import type { FigureSummary, Summary } from '../summary/summary.ts'
import { formatFigure, formatRatio } from './format.ts'
import type { RunRecord } from './run-record.ts'
import type { Table } from './tables.ts'

const record = (name: string): RunRecord =>
  JSON.parse(readFileSync(fileURLToPath(new URL(`../results/${name}.json`, import.meta.url)), 'utf8'))

/** What each line of the tables beside the peers is called. */
const LINES: readonly (readonly [title: string, scenario: string, figure: string])[] = [
  ['P1 single enqueues, 32 in flight, jobs/s', 'enqueue32', 'rate'],
  ['P1 … 256 in flight', 'enqueue256', 'rate'],
  ['P2 bulk, 1,000 a call, 4 in flight, jobs/s', 'bulk4', 'rate'],
  ['P3 drain, one worker process, jobs/s', 'drain1', 'rate'],
  ['P4 … two', 'drain2', 'rate'],
  ['P5 the whole way at once, jobs/s', 'whole', 'rate'],
  ['P6 one job each 20 ms, enqueue called → handler starts, p50 ms', 'latency', 'start p50'],
  ['P6 … p99', 'latency', 'start p99'],
  ['P7 1,000 single enqueues a second, p50 ms', 'stream', 'start p50'],
  ['P7 … p99', 'stream', 'start p99'],
]

const TITLES: Readonly<Record<string, string>> = {
  longshore: 'longshore',
  'longshore-direct': '… direct',
  'graphile-worker': 'graphile-worker batched',
  'graphile-default': '… default',
  'pg-boss': 'pg-boss',
  'bullmq-postgres': 'BullMQ, Postgres',
  bullmq: 'BullMQ, memory',
  'bullmq-aof': '… AOF each second',
  'bullmq-aof-always': '… AOF always',
  floor: 'floor',
}

/** Sets of one question each: a table of its sides, and one of its goals. */
const ONE_QUESTION = ['fleet', 'tasks', 'snapshot', 'footprint', 'liveness']

/** By the name that stands in the page. */
export const docTables: Readonly<Record<string, () => Table>> = {
  'beside the peers': () => besidePeers(Object.keys(TITLES)),
  'beside the peers, in short': () =>
    besidePeers(['longshore', 'longshore-direct', 'graphile-worker', 'pg-boss', 'bullmq-postgres', 'bullmq']),
  'goals beside the peers': () => goalsOf(record('all').summary.goals),
  'goals of growth': () => goalsOf(record('growth').summary.goals),
  'goals beside itself': () => goalsOf(record('itself').summary.goals),
  'cost of a job': costs,
  'before and after': beforeAndAfter,
  growth: () => variantsOf(record('growth').summary),
  'beside itself': () => variantsOf(record('itself').summary),
  ...Object.fromEntries(
    ONE_QUESTION.flatMap(set => [
      [set, () => sidesOf(record(set).summary)],
      [`goals of ${set}`, () => goalsOf(record(set).summary.goals)],
    ]),
  ),
}

const figureOf = ({ figures }: Summary, scenario: string, figure: string): FigureSummary | undefined =>
  figures.find(one => one.scenario === scenario && one.figure.name === figure)

/** Medians. */
function besidePeers(peers: readonly string[]): Table {
  const { summary } = record('all')
  return {
    head: ['', ...peers.map(peer => TITLES[peer] ?? peer)],
    rows: LINES.map(([title, scenario, figure]) => {
      const line = figureOf(summary, scenario, figure)
      const shown = (peer: string) => {
        const spread = line?.sides[peer]
        return spread && line ? formatFigure(spread.median, line.figure.unit) : '–'
      }
      return [title, ...peers.map(shown)]
    }),
  }
}

function goalsOf(verdicts: readonly Verdict[]): Table {
  const hasInterval = verdicts.some(({ ratio }) => ratio.interval)
  return {
    head: ['goal', 'asked', hasInterval ? 'is [95 % interval]' : 'is (least–most)', ''],
    rows: verdicts.map(({ goal, ratio, isReached }) => {
      const figure = typeof goal.figure === 'string' ? goal.figure : `CPU of ${goal.figure.cores}`
      const to = typeof goal.to === 'object' ? goal.to.says : goal.to
      return [
        `${goal.id} \`${goal.scenario}\`, ${figure}, ${goal.side}${to === undefined ? '' : ` : ${to}`}`,
        'atLeast' in goal.asked ? `≥ ${goal.asked.atLeast}` : `≤ ${goal.asked.atMost}`,
        formatRatio(ratio),
        isReached ? 'reached' : '**missed**',
      ]
    }),
  }
}

const OURS = ['longshore', 'longshore-direct'] as const

/** Processor time, µs a job. */
function costs(): Table {
  const [before, after] = [record('before').summary, record('all').summary]
  const of = ({ cores }: Summary, scenario: string, side: string, part: Part) => {
    const used = cores.find(one => one.scenario === scenario && one.side === side)?.usPerJob[part]
    return used === undefined || used < 0.05 ? '–' : used.toFixed(used < 10 ? 1 : 0)
  }
  const scenarios = ['enqueue32', 'bulk4', 'drain1', 'drain2', 'whole', 'stream']
  const titled = (name: string) => PARTS.map((part, i) => (i === 0 ? `${name}: ${part}` : part))
  return {
    head: ['scenario', ...titled('before'), ...titled('after')],
    rows: scenarios.flatMap(scenario =>
      OURS.map(side => [
        side === 'longshore' ? `\`${scenario}\`` : `\`${scenario}\`, direct`,
        ...[before, after].flatMap(summary => PARTS.map(part => of(summary, scenario, side, part))),
      ]),
    ),
  }
}

/** Ratios of the same rounds. */
function beforeAndAfter(): Table {
  const records = [record('before').summary, record('all').summary]
  const others = ['graphile-worker', 'floor']
  return {
    head: ['', ...others.flatMap(other => [`before : ${other}`, `after : ${other}`])],
    rows: LINES.filter(([, scenario]) => scenario !== 'enqueue256').map(([, scenario, figure]) => [
      `\`${scenario}\`, ${figure}`,
      ...others.flatMap(other =>
        records.map(summary => {
          const ratios = figureOf(summary, scenario, figure)?.ratios
          return formatRatio(ratios?.find(({ side, to }) => side === 'longshore' && to === other)?.ratio)
        }),
      ),
    ]),
  }
}

/** A line for each figure: all its variants, the last one is what the others are beside. */
function variantsOf({ figures }: Summary): Table {
  return {
    head: ['scenario', 'figure', 'medians of its variants'],
    rows: figures
      .filter(({ figure }) => figure.better)
      .map(({ scenario, figure, sides }) => [
        `\`${scenario}\``,
        `${figure.name}, ${figure.unit}`,
        Object.entries(sides)
          .map(([side, { median }]) => `${side}: ${formatFigure(median, figure.unit)}`)
          .join(' · '),
      ]),
  }
}

/** A line for each variant, its medians side by side. */
export function sidesOf({ figures }: Summary): Table {
  const shown = figures.filter(
    ({ figure: { better, isHeadline }, sides }) => (better || isHeadline) && Object.keys(sides).length > 0,
  )
  const sides = new Set(shown.flatMap(line => Object.keys(line.sides)))
  return {
    head: ['', ...shown.map(({ figure }) => `${figure.name}, ${figure.unit}`)],
    rows: [...sides].map(side => [
      side,
      ...shown.map(({ figure, sides }) =>
        sides[side] ? formatFigure(sides[side].median, figure.unit) : '–',
      ),
    ]),
  }
}
