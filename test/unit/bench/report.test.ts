/** The report of a run: what it must say for its figures to be worth something. */
import { describe, expect, it } from 'vitest'
import { FULL } from '../../../bench/measure/sizes.ts'
import { readCommandStats } from '../../../bench/profile/print-redis.ts'
import { writeReport } from '../../../bench/report/report.ts'
import type { RunRecord } from '../../../bench/report/run-record.ts'
import type { Result } from '../../../bench/run/rounds.ts'
import { drain1 } from '../../../bench/scenarios/beside-peers/drain-one-worker.ts'
import { summarize } from '../../../bench/summary/summary.ts'
import { result } from './results.ts'

function reportOf(results: readonly Result[]): string {
  const unmeasured = [
    { round: 1, scenario: 'drain1', side: 'pg-boss', reason: 'it fell over', isOurs: false },
  ]
  const sides = ['longshore', 'graphile-worker', 'pg-boss']
  const record: RunRecord = {
    command: 'npm run bench',
    at: '2026-03-01T12:00:00.000Z',
    tookSeconds: 600,
    machine: '2 cores',
    node: 'v20.0.0',
    postgres: 'Postgres 18.4',
    redis: ['Redis 7.0, nothing on disk'],
    leftOut: ['scenarios stream'],
    peers: sides.map(name => ({ name, title: name, version: '1.2.3', durability: `${name} promises` })),
    sizes: { ...FULL, rounds: 3 },
    summary: summarize([drain1], sides, { results, unmeasured }),
    results,
  }
  return writeReport('all', record, [drain1], [{ scenario: drain1, file: 'all-drain1.svg' }])
}

describe('the report of a run', () => {
  const report = reportOf([
    result('longshore', 1, 20),
    result('graphile-worker', 1, 8, { isNoisy: true }),
    result('graphile-worker', 1, 10, { attempt: 2 }),
  ])

  it('says how it was made, where, and what was left out', () => {
    for (const part of ['npm run bench', '2026-03-01', '2 cores', 'v20.0.0', 'Postgres 18.4', 'Redis 7.0'])
      expect(report).toContain(part)
    expect(report).toContain('left out: scenarios stream')
  })

  it('says of each goal whether it is reached, and who went unmeasured and why', () => {
    expect(report).toMatch(
      /\| P3 \| drain1 \| rate \| longshore \| graphile-worker \| ≥ 1.5 \| 2.00 \| reached \|/,
    )
    expect(report).toContain('drain1, pg-boss: it fell over')
  })

  it('says what each peer promises, and shows the charts', () => {
    expect(report).toContain('pg-boss promises')
    expect(report).toContain('(all-drain1.svg)')
  })

  it('says how much was noisy', () => {
    expect(report).toContain('1 measurement was made once more because of noise; then all were quiet')
    expect(reportOf([result('longshore', 1, 20)])).toContain('No measurement was noisy')
  })
})

describe('the statistics of Redis', () => {
  it('are read command by command, the costliest first', () => {
    const text =
      '# Commandstats\r\ncmdstat_get:calls=10,usec=20,usec_per_call=2.00\r\ncmdstat_config|set:calls=1,usec=50,x=1\r\n'
    expect(readCommandStats(text)).toEqual([
      { name: 'config|set', calls: 1, us: 50 },
      { name: 'get', calls: 10, us: 20 },
    ])
  })
})
