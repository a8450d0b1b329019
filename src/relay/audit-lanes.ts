/**
 * The continuous audit: a stretch of some lanes at a time, what is ready in Postgres against what Redis holds, both ways. Lanes with
 * a key only while they have ready jobs: what else stands there is taken in vain, when a beat rings for it. Jobs that differ are
 * read again, as if somebody had changed them, so what is just on its way does no harm. A lane about which Redis does not agree with
 * itself, and a job that stands still for no reason, cost the queue its generation.
 */
import type { JobId } from '../job/job-id.ts'
import type { LaneFacts, ReadyJob } from '../job/ready-job.ts'
import type { Pool } from '../postgres/connect.ts'
import { describeLanes, hasIdleWorker, readLane, readLanesOf } from '../postgres/relay-reads.ts'
import { type LanePage, type Place, START } from '../redis/queue-index.ts'
import { BrokenIndexError } from '../redis/replies.ts'
import type { QueueRelay } from './queue-relay.ts'

const LANES = 20
const PAGE = 500
/** A job that is ready for so long beside a worker with nothing to do stands still. Not again so soon: something else may be the reason. */
const STANDS_MS = 2000
const BLAME_AGAIN_MS = 10_000

export interface LaneAudit {
  look(queue: QueueRelay): Promise<void>
  /** Postgres does not have them any more. */
  forgetLanes(lanes: Iterable<number>): void
  forgetQueue(queue: string): void
}

export function createAudit(options: {
  pool: Pool
  schema: string
  /** As far as the relay knows them. */
  factsOf: (lane: number) => LaneFacts | undefined
  onSuspicious: (id: JobId) => void
}): LaneAudit {
  const { pool, schema, onSuspicious } = options
  const cursors = new Map<string, { lane: number; from: Place }>()
  /** The best job of a lane, since it is. */
  const standing = new Map<number, { id: JobId; leaseToken: string; since: number }>()
  const blamedAt = new Map<string, number>()

  /** Nothing in Redis says why it is not taken: whatever it is, a new generation does not have it. */
  const findStanding = async (queue: QueueRelay, lane: number, best: ReadyJob | undefined) => {
    const known = standing.get(lane)
    const now = performance.now()
    if (!best) return standing.delete(lane)
    if (known?.id !== best.id || known.leaseToken !== best.leaseToken)
      return standing.set(lane, { id: best.id, leaseToken: best.leaseToken, since: now })
    const [stoodMs, blamed] = [now - known.since, blamedAt.get(queue.name) ?? Number.NEGATIVE_INFINITY]
    if (stoodMs < STANDS_MS || now - blamed < BLAME_AGAIN_MS) return
    if (!(await hasIdleWorker(pool, schema, lane, stoodMs))) return
    const [facts] = await describeLanes(pool, schema, [lane])
    if ((facts?.limit && facts.free === '0') || (facts?.keyLimit && facts.keyFree === '0')) return
    standing.delete(lane)
    blamedAt.set(queue.name, now)
    queue.giveUp(
      new BrokenIndexError(
        `job ${best.id} is not taken, although a worker that may run it has nothing to do`,
      ),
    )
  }

  const findWrong = async (lane: number, page: LanePage) => {
    const isRight = (facts: LaneFacts | undefined) =>
      facts?.kind === page.kind && facts.limit === page.limit && facts.keyLimit === page.keyLimit
    if (page.problem !== '') return page.problem
    if (isRight(options.factsOf(lane))) return ''
    const [facts] = await describeLanes(pool, schema, [lane])
    return isRight(facts) ? '' : 'its kind or its limits'
  }

  /** Answers where to go on in this lane, or null at its end. */
  const lookAtLane = async (queue: QueueRelay, lane: number, from: Place): Promise<Place | null> => {
    const page = await queue.lanePage(lane, from, PAGE)
    const ready = await readLane(pool, schema, lane, from, PAGE)
    if (from === START) await findStanding(queue, lane, ready[0])
    if (page.code !== 'OK') {
      if (page.code === 'UNKNOWN' && ready.length > 0) queue.wantMore([lane])
      return null
    }
    const wrong = await findWrong(lane, page)
    if (wrong !== '') {
      queue.giveUp(
        new BrokenIndexError(`Redis does not agree with itself or Postgres about lane ${lane}: ${wrong}`),
      )
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
    forgetLanes(lanes) {
      for (const lane of lanes) standing.delete(lane)
    },
    forgetQueue(queue) {
      cursors.delete(queue)
      blamedAt.delete(queue)
    },
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
