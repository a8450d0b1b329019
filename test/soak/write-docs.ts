/** Writes the figures of `docs/soak.md` anew, from the reports that lie beside this file. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import type { NemesisReport } from '../nemesis/run.ts'

type Report = Omit<NemesisReport, 'folder'>

const HERE = new URL('./', import.meta.url)
const PAGE = new URL('../../docs/soak.md', import.meta.url)
const FIGURES = /(?<=<!-- figures -->\n)[\s\S]*(?=<!-- end of figures -->)/

export function writeDocs(): void {
  const reports = readdirSync(HERE)
    .filter(name => /^report-[\d-]+\.json$/.test(name))
    .map(name => JSON.parse(readFileSync(new URL(name, HERE), 'utf8')) as Report)
    .sort((a, b) => a.seed - b.seed || a.seconds - b.seconds)
  const page = readFileSync(PAGE, 'utf8')
  writeFileSync(PAGE, page.replace(FIGURES, `\n${figures(reports)}\n`))
}

function figures(reports: readonly Report[]): string {
  const rows: [what: string, of: (report: Report) => number | string][] = [
    ['minutes', ({ seconds }) => seconds / 60],
    ['jobs acknowledged', ({ counts }) => counts.acknowledged],
    [
      'jobs of unclear calls: there, not there',
      ({ counts }) => `${counts.unclearFound}, ${counts.unclearAbsent}`,
    ],
    ['jobs rolled back or refused', ({ counts }) => counts.refused],
    ['groups', ({ counts }) => counts.groups],
    ['runs of handlers', ({ counts }) => counts.starts],
    ['of them planned retries', ({ counts }) => counts.plannedRetries],
    ['of them duplicates, all explained', ({ counts }) => sum(Object.values(counts.duplicates))],
    ['rescues', ({ counts }) => counts.rescues],
    ['faults', ({ faults }) => sum(Object.values(faults).map(({ done }) => done))],
    ['processes started', ({ processes }) => processes],
    ['longest wait in the outbox, s', ({ longestOutboxAgeMs }) => seconds(longestOutboxAgeMs)],
    ['until all had drained, s', ({ drainMs }) => seconds(drainMs)],
    ['findings', ({ findings }) => findings.length],
  ]
  const done = totals(
    reports.flatMap(({ faults }) => Object.entries(faults).map(([kind, { done }]) => [kind, done])),
  )
  const reasons = totals(reports.flatMap(({ counts }) => Object.entries(counts.duplicates)))
  return [
    table(
      ['seed', ...reports.map(({ seed }) => String(seed))],
      rows.map(([what, of]) => [what, ...reports.map(of)]),
    ),
    table(['fault, in all runs', 'times'], done),
    table(['why a handler ran again, in all runs', 'times'], reasons),
  ].join('\n')
}

function totals(counts: readonly (readonly [string, number])[]): [string, number][] {
  const all = new Map<string, number>()
  for (const [name, count] of counts) all.set(name, (all.get(name) ?? 0) + count)
  return [...all].sort((a, b) => b[1] - a[1])
}

function table(head: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const line = (cells: readonly (string | number)[]) =>
    `| ${cells.map(cell => (typeof cell === 'number' ? cell.toLocaleString('en') : cell)).join(' | ')} |`
  return [
    line(head),
    `|${head.map((_, at) => (at === 0 ? '---|' : '---:|')).join('')}`,
    ...rows.map(line),
    '',
  ].join('\n')
}

const sum = (numbers: readonly number[]) => numbers.reduce((all, number) => all + number, 0)
const seconds = (ms: number) => Math.round(ms / 100) / 10
