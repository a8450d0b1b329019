/** Owns what `longshore top` shows: a pure function from an overview and the size of the terminal to lines. */
import type {
  Count,
  GroupOverview,
  LimitOverview,
  Overview,
  QueueOverview,
  Unserved,
  WorkerOverview,
} from '../postgres/read-overview.ts'
import type { Rates } from './rates.ts'
import { padded, toPlain, truncate, widthOf } from './terminal-text.ts'
import { type Column, tableLines } from './text-table.ts'

export interface Frame {
  schema: string
  overview: Overview
  /** null: there has been no earlier look to compare with. */
  rates: Rates | null
  /** Why what is shown is not of this moment. */
  trouble?: string
  /** At the right of the first line, such as the keys. */
  hint?: string
}

export interface Size {
  columns: number
  /** Infinite where nothing has to fit. */
  rows: number
}

/** How a line stands out; without colours all are plain. */
type Tone = 'title' | 'head' | 'bad' | 'quiet' | 'plain'

interface Line {
  text: string
  tone: Tone
}

const SGR: Record<Tone, string> = { title: '1', head: '7', bad: '31', quiet: '2', plain: '' }
/** From so many rows on sections stand apart. */
const ROOMY = 30
/** A due job that is not made ready within this is worth a look. */
const OVERDUE_MS = 5000

/** At most `rows` lines, each of at most `columns` columns. */
export function frameLines(frame: Frame, size: Size, hasColors: boolean): string[] {
  const { columns, rows } = size
  const header = headerLines(frame, columns)
  const sections = sectionsOf(frame.overview)
  const isRoomy = rows >= ROOMY
  const overhead = header.length + sections.length * (isRoomy ? 2 : 1)
  const shares = share(
    sections.map(({ count }) => count),
    Math.max(0, rows - overhead),
  )
  const lines = [
    ...header,
    ...sections.flatMap((section, at) => [
      ...(isRoomy ? [{ text: '', tone: 'plain' as const }] : []),
      ...section.lines(shares[at] ?? 0, columns),
    ]),
  ]
  return lines.slice(0, rows).map(line => paint(line, columns, hasColors))
}

function paint({ text, tone }: Line, columns: number, hasColors: boolean): string {
  const shown = truncate(toPlain(text), columns)
  if (!hasColors || tone === 'plain') return shown
  // A head is a bar over the whole width.
  return `\x1b[${SGR[tone]}m${tone === 'head' ? padded(shown, columns) : shown}\x1b[0m`
}

function headerLines({ schema, overview, rates, trouble, hint }: Frame, columns: number): Line[] {
  const { at, dispatch, upkeep, outbox, workers, groups } = overview
  const first = `longshore top  schema ${schema}  dispatch ${dispatch}  ${at.toISOString().slice(11, 19)} UTC`
  const gap = columns - widthOf(first) - widthOf(hint ?? '')
  const of = (state: WorkerOverview['state']) => workers.filter(worker => worker.state === state)
  const live = [...of('live'), ...of('drained')]
  const sum = (what: 'inFlight' | 'capacity') =>
    live.reduce((total, worker) => total + (worker[what] ?? 0), 0)
  // Beats are some seconds old: what was counted is better.
  const running: Count = overview.queues.every(queue => queue.running.is === 'exact')
    ? { count: overview.queues.reduce((total, queue) => total + queue.running.count, 0), is: 'exact' }
    : { count: sum('inFlight'), is: 'about' }
  const rate = (perSecond: number | undefined) =>
    perSecond === undefined ? '-' : `${shownRate(perSecond)}/s`
  const others = (['drained', 'dead'] as const).flatMap(state => {
    const count = of(state).length
    return count > 0 ? [`${count} ${state}`] : []
  })
  const lines: Line[] = [
    { text: hint && gap >= 2 ? `${first}${' '.repeat(gap)}${hint}` : first, tone: 'title' },
    {
      text: [
        `ended ${rate(rates?.endedPerSecond)}`,
        `enqueued ${rate(rates?.enqueuedPerSecond)}`,
        `running ${shownCount(running)} of ${shownNumber(sum('capacity'))}`,
        `workers ${[`${of('live').length}${overview.workerCount.is === 'exact' ? '' : '+'} live`, ...others].join(', ')}`,
      ].join('  '),
      tone: 'plain',
    },
    {
      text: [
        ...(dispatch === 'redis' || outbox.rows.count > 0
          ? [`relay lag ${shownAge(outbox.oldestMs)}, ${shownCount(outbox.rows)} to go`]
          : []),
        ...(groups.unfinished.count > 0
          ? [`groups ${shownCount(groups.unfinished)} open, ${shownCount(groups.stuck)} stuck`]
          : []),
        upkeep.leader === null
          ? 'upkeep: no process does it, start a worker or longshore relay'
          : `upkeep: ${toPlain(upkeep.leader)}`,
      ].join('  '),
      tone: upkeep.leader === null ? 'bad' : 'plain',
    },
  ]
  const [unserved, ...unnamed] = overview.unserved
  if (unserved) lines.push({ text: describeUnserved(unserved, unnamed.length), tone: 'bad' })
  for (const { duty, forMs, error } of upkeep.failing)
    lines.push({ text: `upkeep fails: ${duty} for ${shownAge(forMs)}: ${toPlain(error)}`, tone: 'bad' })
  if (trouble) lines.push({ text: toPlain(trouble), tone: 'bad' })
  return lines
}

/** One is named: it fits, and `explain` knows the others. */
function describeUnserved({ task, queue, tag, constraintTag }: Unserved, others: number): string {
  const wanted = constraintTag === 'c:' ? '' : `, ${constraintTag.slice(2)}`
  const more = others > 0 ? ` and ${others} more` : ''
  return `no live worker takes ready jobs of task ${task} (queue ${queue}, tag ${tag}${wanted})${more}: start one`
}

interface Section {
  /** Rows that it would like to have. */
  count: number
  lines(rows: number, columns: number): Line[]
}

function sectionsOf({
  queues,
  queueCount,
  readyEstimate,
  workers,
  workerCount,
  limits,
  limitCount,
  groups,
}: Overview) {
  const isCut = queues.some(({ ready }) => ready.is === 'atLeast')
  return [
    section(QUEUE_COLUMNS, queues, {
      all: { count: queueCount, is: 'exact' },
      none: 'no queues yet: enqueue a job or start a worker',
      isBad: ({ overdueMs }) => overdueMs > OVERDUE_MS,
      ...(isCut && readyEstimate !== null
        ? { note: `about ${shownNumber(readyEstimate)} ready in all, by Postgres's estimate` }
        : {}),
    }),
    section(WORKER_COLUMNS, workers, {
      all: workerCount,
      none: 'no workers: start one with longshore worker',
      isBad: ({ state }) => state === 'dead',
    }),
    ...(limits.length > 0
      ? [section(LIMIT_COLUMNS, limits, { all: limitCount, none: '', isBad: () => false })]
      : []),
    ...(groups.shown.length > 0
      ? [
          section(GROUP_COLUMNS, groups.shown, {
            all: groups.unfinished,
            none: '',
            isBad: ({ isStuck }) => isStuck,
          }),
        ]
      : []),
  ]
}

function section<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  told: { all: Count; none: string; isBad: (row: Row) => boolean; note?: string },
): Section {
  const unnamed = told.all.count - rows.length
  const below = told.note !== undefined || unnamed > 0 || told.all.is !== 'exact' || rows.length === 0
  return {
    count: rows.length + (below ? 1 : 0),
    lines(most, width) {
      // The last line is for what is not shown.
      const shown = rows.slice(0, rows.length + (below ? 1 : 0) > most ? Math.max(0, most - 1) : most)
      const [head = '', ...body] = tableLines(columns, shown, width)
      const left = told.all.count - shown.length
      const rest = [
        ...(rows.length === 0 ? [told.none] : []),
        ...(left > 0 || told.all.is !== 'exact'
          ? [`… ${shownCount({ ...told.all, count: left })} more`]
          : []),
        ...(told.note === undefined ? [] : [told.note]),
      ].join('; ')
      const lines: Line[] = [
        { text: head, tone: 'head' },
        ...body.map((text, at): Line => {
          const row = shown[at]
          return { text, tone: row !== undefined && told.isBad(row) ? 'bad' : 'plain' }
        }),
      ]
      if (rest !== '' && most > 0) lines.push({ text: rest, tone: 'quiet' })
      return lines
    },
  }
}

/** Rows for each section: all that it needs, or an equal part of what the others leave. */
function share(needs: readonly number[], room: number): number[] {
  const given = needs.map(() => 0)
  let left = Math.min(
    room,
    needs.reduce((sum, need) => sum + need, 0),
  )
  while (left > 0) {
    for (const [at, need] of needs.entries()) {
      if (left === 0 || (given[at] ?? 0) >= need) continue
      given[at] = (given[at] ?? 0) + 1
      left--
    }
  }
  return given
}

const QUEUE_COLUMNS: readonly Column<QueueOverview>[] = [
  { title: 'QUEUE', value: ({ name }) => name, isElastic: true },
  { title: 'READY', value: ({ ready }) => shownCount(ready), align: 'right' },
  { title: 'SCHEDULED', value: ({ scheduled }) => shownCount(scheduled), align: 'right' },
  { title: 'WAITING', value: ({ waiting }) => shownCount(waiting), align: 'right' },
  { title: 'RUNNING', value: ({ running }) => shownCount(running), align: 'right' },
  { title: 'OLDEST', value: ({ oldestReadyMs }) => shownAge(oldestReadyMs), align: 'right' },
  {
    title: 'OVERDUE',
    value: ({ overdueMs }) => shownAge(overdueMs > 0 ? overdueMs : null),
    align: 'right',
  },
  { title: 'MODE', value: ({ scheduleMode }) => scheduleMode ?? '-', from: 100 },
  { title: 'GENERATION', value: ({ generation }) => generation ?? '-', from: 100 },
]

const WORKER_COLUMNS: readonly Column<WorkerOverview>[] = [
  { title: 'ID', value: ({ id }) => `${id}`, align: 'right' },
  { title: 'WORKER', value: ({ name }) => name, isElastic: true },
  { title: 'STATE', value: ({ state }) => state },
  {
    title: 'JOBS',
    value: ({ inFlight, capacity }) => (capacity === null ? '-' : `${inFlight}/${capacity}`),
    align: 'right',
  },
  {
    title: 'MEM',
    value: ({ memory }) => (memory === null ? '-' : `${Math.round(memory * 100)}%`),
    align: 'right',
  },
  { title: 'LAG', value: ({ eventLoopLagMs }) => shownAge(eventLoopLagMs), align: 'right' },
  {
    title: 'DONE',
    value: ({ completed }) => (completed === null ? '-' : shownNumber(completed)),
    align: 'right',
  },
  {
    title: 'FAILED',
    value: ({ failed }) => (failed === null ? '-' : shownNumber(failed)),
    align: 'right',
    from: 100,
  },
  { title: 'BEAT', value: ({ beatAgeMs }) => shownAge(beatAgeMs), align: 'right' },
  { title: 'PROPERTIES', value: ({ properties }) => shownProperties(properties), isElastic: true },
  { title: 'TAGS', value: ({ tags }) => tags.join(','), isElastic: true, from: 100 },
  { title: 'QUEUES', value: ({ queues }) => queues.join(','), isElastic: true, from: 100 },
  { title: 'TASKS', value: ({ tasks }) => tasks.join(','), isElastic: true, from: 140 },
]

const LIMIT_COLUMNS: readonly Column<LimitOverview>[] = [
  { title: 'LIMIT OF TASK', value: ({ task }) => task, isElastic: true },
  { title: 'KEY', value: ({ key }) => (key === '' ? '-' : key), isElastic: true },
  { title: 'USED', value: ({ used }) => shownNumber(used), align: 'right' },
  {
    title: 'OF',
    value: ({ capacity }) => (capacity === null ? 'removed' : shownNumber(capacity)),
    align: 'right',
  },
  { title: 'FULL', value: ({ used, capacity }) => shownShare(used, capacity), align: 'right' },
]

const GROUP_COLUMNS: readonly Column<GroupOverview>[] = [
  { title: 'GROUP', value: ({ id }) => id },
  { title: 'NAME', value: ({ name }) => name ?? '-', isElastic: true },
  { title: 'STATE', value: ({ isStuck }) => (isStuck ? 'stuck' : 'open') },
  { title: 'JOBS LEFT', value: ({ left }) => shownCount(left), align: 'right' },
  { title: 'AGE', value: ({ ageMs }) => shownAge(ageMs), align: 'right' },
]

const shownProperties = (properties: Record<string, string>): string =>
  Object.entries(properties)
    .map(([key, value]) => `${key}=${value}`)
    .join(' ') || '-'

const shownShare = (used: number, capacity: number | null): string =>
  capacity === null ? '-' : `${Math.floor((used / capacity) * 100)}%`

const MARKS: Record<Count['is'], (text: string) => string> = {
  exact: text => text,
  atLeast: text => `${text}+`,
  about: text => `~${text}`,
}

const shownCount = ({ count, is }: Count): string => MARKS[is](shownNumber(count))

function shownNumber(number: number): string {
  if (number < 100_000) return Math.round(number).toLocaleString('en-US')
  if (number < 10_000_000) return `${Math.floor(number / 1000).toLocaleString('en-US')}k`
  return `${Math.floor(number / 1_000_000).toLocaleString('en-US')}M`
}

const shownRate = (rate: number): string => (rate < 10 ? `${Math.round(rate * 10) / 10}` : shownNumber(rate))

function shownAge(ms: number | null): string {
  if (ms === null) return '-'
  if (ms < 1000) return `${Math.round(ms)}ms`
  if (ms < 120_000) return `${Math.round(ms / 1000)}s`
  if (ms < 7_200_000) return `${Math.floor(ms / 60_000)}m`
  if (ms < 172_800_000) return `${Math.floor(ms / 3_600_000)}h`
  return `${Math.floor(ms / 86_400_000)}d`
}
