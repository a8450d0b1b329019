/**
 * Owns the timing of single calls of the hot functions: by the database's clock, without the way there and back, each in
 * a transaction that is rolled back, so that every call finds the same jobs.
 */

import type { Figure, Measurement } from '../measure/measurement.ts'
import type { Setting } from '../measure/setting.ts'
import { quantile } from '../measure/statistics.ts'
import { beginStretch } from '../measure/timed-stretch.ts'
import type { Database } from '../stores/database.ts'

const WARM = 50

/** One worker's claims: what it is called in the figures, and its id. */
export interface Claimer {
  readonly name: string
  readonly id: number
}

/** With the statistics of empty tables, as a queue has them that was analysed while idle, and with those of now. */
const STATISTICS = ['stale', 'fresh'] as const

export const claimFigures = (names: readonly string[]): Figure[] =>
  names.flatMap(name =>
    STATISTICS.flatMap(statistics =>
      ['p50', 'p95'].map(share => ({
        name: `${name}, ${statistics} ${share}`,
        unit: 'ms' as const,
        better: 'lower' as const,
      })),
    ),
  )

/** `fill` makes the jobs and tells who claims; each claim must bring one. */
export async function timeClaims(
  setting: Setting,
  fill: (database: Database) => Promise<readonly Claimer[]>,
): Promise<Measurement> {
  const { database, sizes } = setting
  await database.query('alter table longshore.jobs set (autovacuum_enabled = false)')
  await database.query('analyze')
  await defineTimer(
    database,
    'timed_claim',
    'p_worker int',
    'from longshore.claim(p_worker, 1) c where c.ids is not null',
  )
  const claimers = await fill(database)
  await database.query('checkpoint')
  const stretch = await beginStretch(setting, [])
  const figures: Record<string, number> = {}
  for (const statistics of STATISTICS) {
    if (statistics === 'fresh') await database.query('analyze')
    for (const { name, id } of claimers) {
      const times = await timeCalls(database, `timed_claim(${id})`, sizes.claims)
      if (times.some(({ rows }) => rows !== 1)) throw new Error(`${name}: a claim brought no job`)
      const ms = times.map(time => time.ms)
      figures[`${name}, ${statistics} p50`] = quantile(ms, 0.5)
      figures[`${name}, ${statistics} p95`] = quantile(ms, 0.95)
    }
  }
  const { cores, seconds, writes } = await stretch.end()
  return { jobs: sizes.claims * claimers.length * STATISTICS.length, figures, cores, seconds, writes }
}

/** A function that tells how long a query takes and how many rows it brings. */
export async function defineTimer(
  database: Database,
  name: string,
  parameters: string,
  query: string,
): Promise<void> {
  await database.query(`
    create function ${name}(${parameters}, out ms double precision, out rows bigint) language plpgsql as $$
    declare
      v_from timestamptz := clock_timestamp();
    begin
      select count(*) into rows ${query};
      ms := extract(epoch from clock_timestamp() - v_from) * 1000;
    end $$`)
}

/** Calls of a timer, after some that only warm up. */
export async function timeCalls(
  database: Database,
  call: string,
  calls: number,
): Promise<{ ms: number; rows: number }[]> {
  const times: { ms: number; rows: number }[] = []
  for (let i = -WARM; i < calls; i++) {
    await database.query('begin')
    const [row] = await database.query(`select ms, rows::int from ${call}`)
    await database.query('rollback')
    if (i >= 0) times.push(row as { ms: number; rows: number })
  }
  return times
}
