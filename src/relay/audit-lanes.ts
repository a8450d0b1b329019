/**
 * The continuous audit: a stretch of some lanes at a time, what is ready in Postgres against what Redis holds, both ways. Lanes with
 * a key only while they have ready jobs: what else stands there is taken in vain, when a beat rings for it. Acts on
 * nothing itself: whatever differs is read again, as if somebody had changed it, so what is just on its way does no harm.
 */
import type { JobId } from '../job/job-id.ts'
import type { Pool } from '../postgres/connect.ts'
import { readLane, readLanesOf } from '../postgres/relay-reads.ts'
import { type Place, START } from '../redis/queue-index.ts'
import type { QueueRelay } from './queue-relay.ts'

const LANES = 20
const PAGE = 500

export interface LaneAudit {
  look(queue: QueueRelay): Promise<void>
}

export function createAudit(options: {
  pool: Pool
  schema: string
  onSuspicious: (id: JobId) => void
}): LaneAudit {
  const { pool, schema, onSuspicious } = options
  const cursors = new Map<string, { lane: number; from: Place }>()

  /** Answers where to go on in this lane, or null at its end. */
  const lookAtLane = async (queue: QueueRelay, lane: number, from: Place): Promise<Place | null> => {
    const page = await queue.lanePage(lane, from, PAGE)
    const ready = await readLane(pool, schema, lane, from, PAGE)
    if (page.code !== 'OK') {
      if (page.code === 'UNKNOWN' && ready.length > 0) queue.wantMore([lane])
      return null
    }
    const end = [
      page.jobs.length === PAGE ? page.jobs.at(-1) : null,
      ready.length === PAGE ? ready.at(-1) : null,
      page.bound,
    ]
      .filter(place => place !== null && place !== undefined)
      .sort(byPlace)[0]
    const within = (place: Place) => !end || byPlace(place, end) < 0
    const inRedis = new Set(page.jobs.map(job => job.id))
    const inPostgres = new Set(ready.map(job => job.id))
    for (const job of ready) if (within(job) && !inRedis.has(job.id)) onSuspicious(job.id)
    for (const job of page.jobs) if (within(job) && !inPostgres.has(job.id)) onSuspicious(job.id)
    const isBound = end && page.bound && end.id === page.bound.id
    return end && !isBound ? end : null
  }

  return {
    async look(queue) {
      const cursor = cursors.get(queue.name) ?? { lane: 0, from: START }
      cursors.delete(queue.name)
      const lanes =
        cursor.from === START
          ? await readLanesOf(pool, schema, queue.name, cursor.lane, LANES)
          : [cursor.lane]
      for (const lane of lanes) {
        const next = await lookAtLane(queue, lane, lane === cursor.lane ? cursor.from : START)
        if (next) {
          cursors.set(queue.name, { lane, from: next })
          return
        }
      }
      const last = lanes.at(-1)
      if (last !== undefined) cursors.set(queue.name, { lane: last, from: START })
    },
  }
}

function byPlace(a: Place, b: Place): number {
  const difference = Number(a.score) - Number(b.score)
  if (difference !== 0) return difference
  return a.id < b.id ? -1 : a.id > b.id ? 1 : 0
}
