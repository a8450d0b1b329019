/** Owns the watch over a run: tells producers how much there is to do, lets halted workflows go on, takes samples and tells how it goes. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Producer } from '../../src/index.ts'
import type { TheCast } from './cast.ts'
import { resumeHalted } from './settle-down.ts'
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

const LOOK_MS = 500
const RESUME_MS = 3000
const SAMPLE_MS = 5000
const TELL_MS = 30_000
export const WATCHED = [
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

export function startWatch(stage: Stage, cast: TheCast, control: Producer, tell: (line: string) => void) {
  const samples: Sample[] = []
  const since = performance.now()
  let isOver = false
  let lastSample = 0
  let lastTold = 0
  let lastResume = 0
  const look = async () => {
    const at = performance.now() - since
    const [row] = await stage.rows<{ n: number }>('select count(*)::int as n from longshore.jobs')
    for (const place of cast.places) place.order({ backlog: row?.n ?? 0 })
    if (at - lastResume > RESUME_MS) {
      lastResume = at
      await resumeHalted(stage, control)
    }
    if (at - lastSample > SAMPLE_MS) {
      lastSample = at
      samples.push(await takeSample(stage, at))
    }
    if (at - lastTold > TELL_MS) {
      lastTold = at
      const { unfinished, ended, outboxAgeMs, redisBytes } = samples.at(-1) ?? {}
      tell(
        `${Math.round(at / 1000)} s: ${ended} ended, ${unfinished} unfinished, outbox ${outboxAgeMs} ms, Redis ${redisBytes} bytes`,
      )
    }
  }
  const watching = (async () => {
    while (!isOver) {
      // A store may be away just now.
      await look().catch(() => undefined)
      await pause(LOOK_MS)
    }
  })()
  return {
    async stop() {
      isOver = true
      await watching
      return samples
    },
  }
}

async function takeSample(stage: Stage, at: number): Promise<Sample> {
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
