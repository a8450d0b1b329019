/** What `longshore top` shows fits the terminal, whatever it is told. */
import { stripVTControlCharacters } from 'node:util'
import { describe, expect, it } from 'vitest'
import { createRateMeter } from '../../src/cli/rates.ts'
import { toPlain, truncate, widthOf } from '../../src/cli/terminal-text.ts'
import { type Frame, frameLines } from '../../src/cli/top-frame.ts'
import type { Count, Overview, QueueOverview, WorkerOverview } from '../../src/postgres/read-overview.ts'

const exactly = (count: number): Count => ({ count, is: 'exact' })
const AT = new Date('2026-03-01T12:34:56Z')

const queue = (name: string, more: Partial<QueueOverview> = {}): QueueOverview => ({
  name,
  ready: exactly(12),
  scheduled: exactly(3),
  waiting: exactly(0),
  running: exactly(40),
  oldestReadyMs: 4200,
  overdueMs: 0,
  scheduleMode: null,
  generation: null,
  ...more,
})

const worker = (id: number, more: Partial<WorkerOverview> = {}): WorkerOverview => ({
  id,
  name: `host-${id}`,
  state: 'live',
  inFlight: 5,
  capacity: 20,
  memory: 0.43,
  eventLoopLagMs: 11.6,
  completed: 1234,
  failed: 1,
  queues: ['default'],
  tasks: ['send-mail'],
  tags: ['default'],
  properties: { gpu: 'a100' },
  startedAt: AT,
  beatAgeMs: 2400,
  ...more,
})

const EMPTY: Overview = {
  at: AT,
  dispatch: 'direct',
  queues: [],
  queueCount: 0,
  readyEstimate: null,
  workers: [],
  workerCount: exactly(0),
  unserved: [],
  limits: [],
  limitCount: exactly(0),
  groups: { unfinished: exactly(0), stuck: exactly(0), shown: [] },
  upkeep: { leader: null, rank: 'worker', epoch: 0, failing: [] },
  outbox: { rows: exactly(0), oldestMs: 0 },
  oldestTransactionMs: 0,
  deadRows: 0,
  totals: { enqueued: 0, ended: 0 },
}

const BUSY: Overview = {
  ...EMPTY,
  dispatch: 'redis',
  queues: [
    queue('default', { ready: { count: 10_000, is: 'atLeast' }, running: { count: 40, is: 'about' } }),
    queue('images', { scheduleMode: 'balanced', generation: '7-abc', overdueMs: 60_000 }),
  ],
  queueCount: 2,
  readyEstimate: 1_234_567,
  workers: [worker(1), worker(2, { state: 'drained', properties: {} }), worker(3, { state: 'dead' })],
  workerCount: exactly(3),
  limits: [
    { task: 'resize-image', key: '', capacity: 20, used: 20 },
    { task: 'resize-image', key: 'tenant-7', capacity: null, used: 1 },
  ],
  limitCount: exactly(2),
  groups: {
    unfinished: exactly(2),
    stuck: exactly(1),
    shown: [
      {
        id: '0198c0de-0000-7000-8000-000000000001',
        name: 'nightly',
        isStuck: true,
        ageMs: 7_300_000,
        left: exactly(4),
      },
      {
        id: '0198c0de-0000-7000-8000-000000000002',
        name: null,
        isStuck: false,
        ageMs: 900,
        left: { count: 1000, is: 'atLeast' },
      },
    ],
  },
  upkeep: { leader: 'relay host:1:abc', rank: 'relay with Redis', epoch: 7, failing: [] },
  outbox: { rows: exactly(3), oldestMs: 12 },
}

const SMALL = { columns: 80, rows: 24 }
const LARGE = { columns: 200, rows: 50 }

const frame = (overview: Overview, more: Partial<Frame> = {}): Frame => ({
  schema: 'longshore',
  overview,
  rates: { endedPerSecond: 1234.4, enqueuedPerSecond: 0.25 },
  hint: 'q quits',
  ...more,
})

function expectFits(lines: string[], { columns, rows }: { columns: number; rows: number }): void {
  expect(lines.length).toBeLessThanOrEqual(rows)
  for (const line of lines) {
    expect(widthOf(line)).toBeLessThanOrEqual(columns)
    expect(line).not.toMatch(/\p{Cc}/u)
  }
}

describe('the frame', () => {
  it('[W12] fits 80 × 24, with what matters of each section', () => {
    const lines = frameLines(frame(BUSY), SMALL, false)
    expectFits(lines, SMALL)
    expect(lines).toMatchInlineSnapshot(`
      [
        "longshore top  schema longshore  dispatch redis  12:34:56 UTC            q quits",
        "ended 1,234/s  enqueued 0.3/s  running ~10 of 40  workers 1 live, 1 drained, 1 …",
        "relay lag 12ms, 3 to go  groups 2 open, 1 stuck  upkeep: relay host:1:abc",
        "QUEUE      READY  SCHEDULED  WAITING  RUNNING  OLDEST  OVERDUE",
        "default  10,000+          3        0      ~40      4s        -",
        "images        12          3        0       40      4s      60s",
        "about 1,234k ready in all, by Postgres's estimate",
        "ID  WORKER  STATE    JOBS  MEM   LAG   DONE  BEAT  PROPERTIES",
        " 1  host-1  live     5/20  43%  12ms  1,234    2s  gpu=a100",
        " 2  host-2  drained  5/20  43%  12ms  1,234    2s  -",
        " 3  host-3  dead     5/20  43%  12ms  1,234    2s  gpu=a100",
        "LIMIT OF TASK  KEY       USED       OF  FULL",
        "resize-image   -           20       20  100%",
        "resize-image   tenant-7     1  removed     -",
        "GROUP                                 NAME     STATE  JOBS LEFT    AGE",
        "0198c0de-0000-7000-8000-000000000001  nightly  stuck          4     2h",
        "0198c0de-0000-7000-8000-000000000002  -        open      1,000+  900ms",
      ]
    `)
  })

  it('[W12] shows more columns of a wide terminal', () => {
    const lines = frameLines(frame(BUSY), LARGE, false)
    expectFits(lines, LARGE)
    expect(lines).toMatchInlineSnapshot(`
      [
        "longshore top  schema longshore  dispatch redis  12:34:56 UTC                                                                                                                                    q quits",
        "ended 1,234/s  enqueued 0.3/s  running ~10 of 40  workers 1 live, 1 drained, 1 dead",
        "relay lag 12ms, 3 to go  groups 2 open, 1 stuck  upkeep: relay host:1:abc",
        "",
        "QUEUE      READY  SCHEDULED  WAITING  RUNNING  OLDEST  OVERDUE  MODE      GENERATION",
        "default  10,000+          3        0      ~40      4s        -  -         -",
        "images        12          3        0       40      4s      60s  balanced  7-abc",
        "about 1,234k ready in all, by Postgres's estimate",
        "",
        "ID  WORKER  STATE    JOBS  MEM   LAG   DONE  FAILED  BEAT  PROPERTIES  TAGS     QUEUES   TASKS",
        " 1  host-1  live     5/20  43%  12ms  1,234       1    2s  gpu=a100    default  default  send-mail",
        " 2  host-2  drained  5/20  43%  12ms  1,234       1    2s  -           default  default  send-mail",
        " 3  host-3  dead     5/20  43%  12ms  1,234       1    2s  gpu=a100    default  default  send-mail",
        "",
        "LIMIT OF TASK  KEY       USED       OF  FULL",
        "resize-image   -           20       20  100%",
        "resize-image   tenant-7     1  removed     -",
        "",
        "GROUP                                 NAME     STATE  JOBS LEFT    AGE",
        "0198c0de-0000-7000-8000-000000000001  nightly  stuck          4     2h",
        "0198c0de-0000-7000-8000-000000000002  -        open      1,000+  900ms",
      ]
    `)
  })

  it('[W12] tells a newcomer what is missing', () => {
    const lines = frameLines(frame(EMPTY, { rates: null }), SMALL, false)
    expectFits(lines, SMALL)
    expect(lines).toMatchInlineSnapshot(`
      [
        "longshore top  schema longshore  dispatch direct  12:34:56 UTC           q quits",
        "ended -  enqueued -  running 0 of 0  workers 0 live",
        "upkeep: no process does it, start a worker or longshore relay",
        "QUEUE  READY  SCHEDULED  WAITING  RUNNING  OLDEST  OVERDUE",
        "no queues yet: enqueue a job or start a worker",
        "ID  WORKER  STATE  JOBS  MEM  LAG  DONE  BEAT  PROPERTIES",
        "no workers: start one with longshore worker",
      ]
    `)
  })

  it('[W12] tells how many workers, queues and limits have no row', () => {
    const many: Overview = {
      ...BUSY,
      queues: Array.from({ length: 50 }, (_, n) => queue(`queue-${n}`)),
      queueCount: 300,
      workers: Array.from({ length: 200 }, (_, n) => worker(n + 1)),
      workerCount: exactly(200),
      limitCount: { count: 999, is: 'atLeast' },
    }
    const lines = frameLines(frame(many), SMALL, false)
    expectFits(lines, SMALL)
    expect(lines).toHaveLength(SMALL.rows)
    const named = (what: RegExp) => lines.filter(line => what.test(line)).length
    expect(lines).toContain(`… ${300 - named(/^queue-\d/)} more`)
    expect(lines).toContain(`… ${200 - named(/ host-\d/)} more`)
    expect(lines).toContain(`… ${999 - named(/^resize-image/)}+ more`)
    expect(named(/^queue-\d/)).toBeGreaterThan(2)
    expect(named(/ host-\d/)).toBeGreaterThan(2)
  })

  it('[W12] fits any size', () => {
    for (let rows = 1; rows < 40; rows++) {
      for (const columns of [1, 2, 10, 39, 79, 99, 141]) {
        const lines = frameLines(
          frame(BUSY, { trouble: 'Postgres: gone; trying again' }),
          { columns, rows },
          false,
        )
        expectFits(lines, { columns, rows })
      }
    }
  })

  it('[W12] prints all of it where nothing has to fit', () => {
    const workers = Array.from({ length: 200 }, (_, n) => worker(n + 1))
    const all = { columns: 160, rows: Number.POSITIVE_INFINITY }
    const lines = frameLines(frame({ ...BUSY, workers, workerCount: exactly(200) }), all, false)
    expect(lines.filter(line => / host-\d/.test(line))).toHaveLength(200)
    expect(lines.join('\n')).not.toContain('more')
  })

  it('[W12] is not steered by names, and counts wide characters as two columns', () => {
    const evil = '\x1b[2J\x1b]0;owned\x07\r\nevil\u{9b}31m\u202egpj.exe\u200b'
    const hostile: Overview = {
      ...BUSY,
      queues: [queue(evil), queue('報告書'.repeat(30)), queue('🚀👩‍👩‍👧🇩🇪e\u0301'.repeat(20))],
      queueCount: 3,
      workers: [
        worker(1, { name: evil, properties: { gpu: evil }, tags: [evil], queues: [evil], tasks: [evil] }),
      ],
      workerCount: exactly(1),
      limits: [{ task: evil, key: '鍵'.repeat(100), capacity: 1, used: 1 }],
      upkeep: { leader: evil, rank: 'worker', epoch: 1, failing: [] },
    }
    for (const size of [SMALL, LARGE]) {
      const lines = frameLines(frame(hostile, { trouble: evil }), size, false)
      expectFits(lines, size)
      expect(lines.join('')).not.toMatch(/[\u202e\u200b]/)
    }
  })

  it('[W12] colours only when asked to, and ends each colour on its line', () => {
    const lines = frameLines(frame(BUSY, { trouble: 'gone' }), SMALL, true)
    const painted = lines.filter(line => line.includes('\x1b'))
    expect(painted.length).toBeGreaterThan(4)
    for (const line of painted)
      expect(line.split('\x1b')).toEqual(['', expect.stringMatching(/^\[\d+m/), '[0m'])
    const bare = painted.map(line => stripVTControlCharacters(line).trimEnd())
    expect(frameLines(frame(BUSY, { trouble: 'gone' }), SMALL, false)).toEqual(expect.arrayContaining(bare))
  })
})

describe('texts of others', () => {
  it.each([
    ['plain', 'plain', 5],
    ['a\nb\tc\x7f', 'a·b·c·', 6],
    ['漢字', '漢字', 4],
    ['ｶﾅ', 'ｶﾅ', 2],
    ['e\u0301', 'é', 1],
    ['👍🏽', '👍', 2],
    ['\ud800', '·', 1],
  ])('%j is shown as %j in %i columns', (text, shown, width) => {
    expect(toPlain(text)).toBe(shown)
    expect(widthOf(toPlain(text))).toBe(width)
  })

  it.each([
    ['abcdef', 6, 'abcdef'],
    ['abcdef', 4, 'abc…'],
    ['漢字漢字', 4, '漢…'],
    ['abc', 1, '…'],
    ['abc', 0, ''],
  ])('%s in %i columns is %s', (text, width, shown) => {
    expect(truncate(text, width)).toBe(shown)
  })
})

describe('throughput', () => {
  const look = (ms: number, ended: number, enqueued = ended) => ({
    at: new Date(AT.getTime() + ms),
    totals: { ended, enqueued },
  })

  it('[W12] is told from the second look on, over the last five seconds', () => {
    const meter = createRateMeter()
    expect(meter(look(0, 1000))).toBeNull()
    expect(meter(look(1000, 1100, 1300))).toEqual({ endedPerSecond: 100, enqueuedPerSecond: 300 })
    for (let second = 2; second <= 10; second++) meter(look(second * 1000, 1100, 1300))
    expect(meter(look(11_000, 1600, 1300))).toEqual({ endedPerSecond: 100, enqueuedPerSecond: 0 })
  })

  it('[W12] begins anew when a counter falls', () => {
    const meter = createRateMeter()
    meter(look(0, 1000))
    expect(meter(look(1000, 10))).toBeNull()
    expect(meter(look(2000, 30))).toEqual({ endedPerSecond: 20, enqueuedPerSecond: 20 })
  })
})
