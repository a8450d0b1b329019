/** Owns the watch over a long run: what must not grow while the load stays the same, as samples and as a verdict. */
import type { Place } from './cast.ts'
import type { Stage } from './stage.ts'

export interface Sample {
  /** Milliseconds from the start. */
  at: number
  unfinished: number
  ended: number
  outboxAgeMs: number
  redisBytes: number
  /** Bytes and dead rows of the tables that hold what is unfinished; history grows by its nature. */
  tables: Record<string, { bytes: number; dead: number }>
}

export interface Growth {
  what: string
  /** Medians of the first third and of the last. */
  before: number
  after: number
  most: number
}

const WATCHED = [
  'jobs',
  'outbox',
  'workers',
  'limits',
  'slot_groups',
  'lane_heads',
  'lanes',
  'workflows',
  'awaited',
]
/** Noise of a short run: below this nothing is said to grow. */
const FACTOR = 1.5
const SPARE = { bytes: 8 * 2 ** 20, rss: 32 * 2 ** 20, ms: 10_000 }
/** Everything has warmed up by then. */
const WARM_MS = 60_000
const LEAST_SAMPLES = 30

export async function takeSample(stage: Stage, at: number): Promise<Sample> {
  const [row] = await stage.rows<{ unfinished: number; ended: number; age: number }>(
    `select (select count(*)::int from longshore.jobs) as unfinished,
       (select count(*)::int from longshore.finished_jobs) as ended,
       coalesce((select extract(epoch from clock_timestamp() - min(created_at)) * 1000 from longshore.outbox), 0)::float8 as age`,
  )
  const tables = await stage.rows<{ name: string; bytes: number; dead: number }>(
    `select relname as name, pg_total_relation_size(relid)::float8 as bytes, n_dead_tup::float8 as dead
     from pg_stat_user_tables where schemaname = 'longshore' and relname = any ($1)`,
    [WATCHED],
  )
  const info = String(await stage.command('INFO', 'memory'))
  return {
    at,
    unfinished: row?.unfinished ?? 0,
    ended: row?.ended ?? 0,
    outboxAgeMs: Math.round(row?.age ?? 0),
    redisBytes: Number(/^used_memory:(\d+)/m.exec(info)?.[1]),
    tables: Object.fromEntries(tables.map(({ name, bytes, dead }) => [name, { bytes, dead }])),
  }
}

/** What was compared, and what has grown by more than it may. Nothing for a run too short to tell. */
export function judgeGrowth(
  samples: readonly Sample[],
  places: readonly Pick<Place, 'memory'>[],
): { compared: Growth[]; grown: Growth[] } {
  const compared: Growth[] = []
  const compare = (what: string, values: readonly number[], spare: number) => {
    if (values.length < LEAST_SAMPLES) return
    const third = Math.floor(values.length / 3)
    const before = median(values.slice(0, third))
    compared.push({
      what,
      before,
      after: median(values.slice(-third)),
      most: Math.round(before * FACTOR + spare),
    })
  }
  const warm = samples.filter(({ at }) => at > WARM_MS)
  compare(
    'memory of Redis',
    warm.map(({ redisBytes }) => redisBytes),
    SPARE.bytes,
  )
  compare(
    'age of the outbox in ms',
    warm.map(({ outboxAgeMs }) => outboxAgeMs),
    SPARE.ms,
  )
  for (const table of WATCHED)
    compare(
      `bytes of table ${table}`,
      warm.map(({ tables }) => tables[table]?.bytes ?? 0),
      SPARE.bytes,
    )
  for (const { memory } of places)
    for (const [name, told] of memory) {
      const since = told.filter(({ at }) => at - (told[0]?.at ?? 0) > WARM_MS)
      compare(
        `memory of ${name}`,
        since.map(({ rssBytes }) => rssBytes),
        SPARE.rss,
      )
    }
  return { compared, grown: compared.filter(({ after, most }) => after > most) }
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0
}
