/** Owns the verdict over a long run: what must not grow while the load stays the same. */
import type { Place } from './cast.ts'
import { type Sample, WATCHED } from './watch.ts'

export interface Growth {
  what: string
  /** Medians of the first third and of the last. */
  before: number
  after: number
  most: number
}

/** Noise of a short run: below this nothing is said to grow. */
const FACTOR = 1.5
const SPARE = { bytes: 8 * 2 ** 20, rss: 32 * 2 ** 20, ms: 10_000, rows: 50_000 }
/** Everything has warmed up by then. */
const WARM_MS = 60_000
const LEAST_SAMPLES = 30

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
  for (const table of WATCHED) {
    compare(
      `bytes of table ${table}`,
      warm.map(({ tables }) => tables[table]?.bytes ?? 0),
      SPARE.bytes,
    )
    compare(
      `dead rows of table ${table}`,
      warm.map(({ tables }) => tables[table]?.dead ?? 0),
      SPARE.rows,
    )
  }
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
