/** Owns putting very many numbered jobs into an installation by SQL, waiting or ended: faster than any producer. */
import type { Database } from '../stores/database.ts'
import { storeHeads } from './stored-jobs.ts'

const CHUNK = 250_000
const DAYS = 7
const DAY_MS = 86_400_000

/** UUIDv7 in the order of n, from a moment on: a thousand a millisecond. */
const idFrom = (firstMs: number) =>
  `(lpad(to_hex(${firstMs} + n / 1000), 12, '0') || '7' || lpad(to_hex(n % 1000 * 4), 3, '0')
    || '8' || substr(md5(n::text), 1, 15))::uuid`

/** As `jobData` makes it; `t` is 0, so what a worker takes for a job's latency is the moment at which it began. */
const PAYLOAD = `('{"seq":' || n || ',"t":0,"tenant":"acme-emea-01","kind":"noop","note":"xxxxxxxxxxxxxxxxxxxxxxxx"}')::jsonb`

async function inChunks(rows: number, store: (from: number, to: number) => Promise<unknown>): Promise<void> {
  for (let from = 0; from < rows; from += CHUNK) await store(from, Math.min(rows, from + CHUNK) - 1)
}

/** `count` ready jobs, numbered from 0 on, best first. They go round the tasks, or round the keys of the one task. */
export async function storeNumberedJobs(
  database: Database,
  count: number,
  lanes: { tasks?: readonly string[]; keys?: number } = {},
): Promise<void> {
  const { tasks = ['noop'], keys = 0 } = lanes
  const kinds = tasks.flatMap(task =>
    keys === 0 ? [`('${task}', '')`] : Array.from({ length: keys }, (_, n) => `('${task}', 'key-${n}')`),
  )
  const [made] = await database.query(`
    select array_agg(longshore.find_lane('default', k.task, 'default', 'c:', k.key))::text as ids
    from (values ${kinds.join(',')}) as k(task, key)`)
  const firstMs = Date.now() - Math.ceil(count / 1000)
  await inChunks(count, (from, to) =>
    database.query(`
      insert into longshore.jobs (id, lane, score, state, max_attempts, payload)
      select ${idFrom(firstMs)}, ('${made?.['ids']}'::int[])[1 + n % ${kinds.length}],
        longshore.score(0, to_timestamp(${firstMs} / 1000.0)) + n / 1000, 'ready', 3, ${PAYLOAD}
      from generate_series(${from}, ${to}) n`),
  )
  if (keys > 0) await storeHeads(database)
}

/** Jobs that have succeeded, spread evenly over today and the days before it, and kept for as long after those. */
export async function storeHistory(database: Database, rows: number): Promise<void> {
  const perDay = Math.ceil(rows / DAYS)
  for (let ago = 0; ago < DAYS; ago++) {
    const ms = Date.now() - ago * DAY_MS
    const keepUntil = new Date(ms + DAYS * DAY_MS).toISOString().slice(0, 10)
    // An hour ago: the jobs of the measurement come later.
    const firstMs = ms - Math.min(3_600_000, ms % DAY_MS)
    await inChunks(perDay, (from, to) =>
      database.query(`
        insert into longshore.finished_jobs (id, score, lease_token, created_at, started_at, finished_at, lane,
          worker_id, keep_until, state, attempts, max_attempts, payload)
        select ${idFrom(firstMs)}, longshore.score(0, m.at) + n / 1000, 1, m.at, m.at, m.at, 1, 1, '${keepUntil}', 'succeeded',
          1, 3, ${PAYLOAD}
        from generate_series(${from}, ${to}) n, (select to_timestamp(${firstMs} / 1000.0) as at) m`),
    )
  }
}
