/**
 * One queue as the leading relay knows it: which generation Redis holds, the number of the last step, and which lanes are to be
 * read on in. Steps are strictly one after another. A queue that cannot be reached, has lost something, or holds what makes no
 * sense is closed and begins a new generation: rebuilding is refilling, with nothing read in at the start.
 */

import { randomBytes } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import type { JobId } from '../job/job-id.ts'
import type { LaneFacts, ReadyJob } from '../job/ready-job.ts'
import type { Pool } from '../postgres/connect.ts'
import { noteBuilt, noteGeneration, readLane, readLanesOf, readRelayed } from '../postgres/relay-reads.ts'
import type { Holder } from '../postgres/secret.ts'
import {
  type Beat,
  type How,
  type Place,
  type QueueIndex,
  type Spread,
  START,
  type Step,
} from '../redis/queue-index.ts'
import { isAnswer } from '../redis/replies.ts'
import type { Logger } from '../runtime/logger.ts'

/** Redis says that a later leader has been there. */
export class FencedError extends Error {
  constructor(readonly epoch: string) {
    super('a later leader has been in Redis')
  }
}

/** This is not the content that the relay knows: emptied, or an older state of it. */
class LostError extends Error {
  constructor() {
    super('Redis does not hold what the relay has put there')
  }
}

export interface Sizes {
  /** Copies in one worker's queue. */
  depth: number
  /** Ready jobs of one lane that are in Redis. */
  window: number
}

export interface QueueRelay {
  readonly name: string
  /** Its key in Redis. */
  readonly root: string
  /** Steps can be taken. */
  readonly isOpen: boolean
  /** Workers may take from it: it is open, and the first lanes have been read in. */
  readonly isLive: boolean
  readonly generation: string
  readonly seq: number
  /** Generations that were begun. */
  readonly begun: number
  /** Lanes that wait to be read on in. */
  readonly lowLanes: ReadonlySet<number>
  /** Scores behind which lanes have no room; of the lanes that go on in Postgres only. */
  readonly bounds: ReadonlyMap<number, Place>
  /** Go on with what Redis holds, if that is what Postgres says it should be and nothing was passed by; else begin anew. */
  open(mayAdopt: () => boolean): Promise<void>
  /** Answers how many were not known. */
  place(how: How, jobs: readonly ReadyJob[]): Promise<number>
  remove(ids: readonly JobId[]): Promise<void>
  setSlots(limit: number, free: string, turn: string | null): Promise<void>
  setSpread(spread: Spread): Promise<void>
  unregister(worker: number): Promise<JobId[]>
  refill(lane: LaneFacts): Promise<void>
  beat(): Promise<Beat | undefined>
  wantMore(lanes: readonly number[]): void
  /** If every lane has been read in: whoever leads next may go on with this generation. */
  keep(): Promise<void>
  /** Postgres knows of no such lane: it need not be read in. */
  forget(lane: number): void
  /** Postgres does not have these lanes any more. */
  forgetLanes(lanes: readonly number[]): Promise<void>
  /** Nor these limits of keys. Lanes under them are read in again when they have jobs. */
  forgetLimits(limits: readonly number[]): Promise<void>
  /** Nothing of it is to be in Redis any more. Resolves when it is closed; `dropped` when the last key is gone. */
  retire(): Promise<{ dropped: Promise<void> }>
  lanePage: (lane: number, from: Place, most: number) => ReturnType<QueueIndex['lanePage']>
  /** What Redis holds of it is not to be gone on with. */
  giveUp(why: unknown): void
}

/** What fits one script call. */
const MOST_ITEMS = 1000
/** A job that was taken and not claimed for so long is looked after. */
const OVERDUE_MS = 5000
const TRIES = 3
const RETRY_MS = 50
/** Workers come back when so many lanes have been read in. */
const FIRST_LANES = 50
const LANES_A_READ = 1000
const DROP_A_CALL = 500

export function createQueueRelay(options: {
  name: string
  index: QueueIndex
  pool: Pool
  schema: string
  holder: Holder
  epoch: () => string
  spread: Spread
  sizes: Sizes
  logger: Logger
}): QueueRelay {
  const { name, index, pool, schema, logger } = options
  let { spread } = options
  let generation = ''
  let seq = 0
  let begunCount = 0
  let isOpen = false
  let isRebuilding = false
  let rebuilt = 0
  /** The generation that whoever leads next may go on with. */
  let kept = ''
  /** Lanes that have not been read in at all. A new leader would not know of them. */
  const unread = new Set<number>()
  const lowLanes = new Set<number>()
  const bounds = new Map<number, Place>()
  /** Lanes that were wholly in Redis when they were last read. */
  const whole = new Set<number>()
  let last: Promise<unknown> = Promise.resolve()

  /** One after another. */
  const serially = <T>(work: () => Promise<T>): Promise<T> => {
    const next = last.then(work)
    last = next.catch(() => undefined) // whoever asked is told
    return next
  }

  const close = (error: unknown) => {
    if (isOpen) {
      logger.warn(
        { err: error, queue: name, generation },
        'the queue in Redis is given up and will be built anew; workers claim from Postgres meanwhile',
      )
    }
    isOpen = false
  }

  const step = async <T extends { code: string }>(call: (step: Step) => Promise<T>): Promise<T> =>
    serially(async () => {
      if (!isOpen) throw new LostError()
      const mine = { epoch: options.epoch(), generation, seq: seq + 1 }
      try {
        const answer = await persistently(() => call(mine))
        if (answer.code === 'FENCED') throw new FencedError('')
        if (answer.code === 'LOST') throw new LostError()
        seq = mine.seq
        return answer
      } catch (error) {
        close(error)
        throw error
      }
    })

  /** No step: it may fail for want of a connection. What it finds may not be gone on with. */
  const look = async (lane: number, from: Place, most: number) => {
    const of = generation
    try {
      return await index.lanePage(of, lane, from, most)
    } catch (error) {
      if (isAnswer(error) && of === generation) close(error)
      throw error
    }
  }

  const inChunks = async <T>(items: readonly T[], send: (chunk: T[]) => Promise<unknown>) => {
    for (let at = 0; at < items.length; at += MOST_ITEMS) await send(items.slice(at, at + MOST_ITEMS))
  }

  const setBound = (lane: number, bound: Place | null) => {
    if (bound) bounds.set(lane, bound)
    else bounds.delete(lane)
    if (bound) whole.delete(lane)
    else whole.add(lane)
  }

  const begin = async () => {
    const former = await readRelayed(pool, schema, name)
    const next = `${options.epoch()}-${randomBytes(3).toString('hex')}`
    if (!(await noteGeneration(pool, schema, options.holder, name, next))) throw new FencedError('')
    const begun = await index.beginGeneration(options.epoch(), next, spread, options.sizes)
    if (begun.code === 'FENCED') throw new FencedError(begun.epoch)
    generation = next
    seq = 0
    begunCount++
    lowLanes.clear()
    bounds.clear()
    whole.clear()
    rebuilt = 0
    unread.clear()
    for (let after = 0; ; ) {
      const lanes = await readLanesOf(pool, schema, name, after, LANES_A_READ)
      for (const lane of lanes) lowLanes.add(lane)
      for (const lane of lanes) unread.add(lane)
      if (lanes.length < LANES_A_READ) break
      after = lanes.at(-1) as number
    }
    isRebuilding = lowLanes.size > 0
    isOpen = true
    logger.info({ queue: name, generation, lanes: lowLanes.size }, 'building the queue in Redis anew')
    // Also what a relay that died has ended and not dropped.
    for (const old of new Set([begun.before, former?.generation ?? ''])) {
      if (old === '') continue
      drop(old).catch(error =>
        logger.info({ err: error, queue: name }, 'an earlier generation is left behind in Redis'),
      )
    }
  }

  const drop = async (old: string) => {
    while (await index.dropGeneration(old, DROP_A_CALL)) await pause(1)
  }

  const adopt = async (mayAdopt: () => boolean): Promise<boolean> => {
    if (!mayAdopt()) return false
    const known = await readRelayed(pool, schema, name)
    if (!known) return false
    const adopted = await index.adopt({ epoch: options.epoch(), ...known }, options.sizes)
    if (adopted.code === 'FENCED') throw new FencedError(adopted.epoch)
    if (adopted.code === 'LOST') return false
    // Whoever led before may have spread jobs by another rule.
    const step = { epoch: options.epoch(), generation: known.generation, seq: adopted.seq + 1 }
    const code = await index.setMode(step, spread)
    if (code === 'FENCED') throw new FencedError('')
    if (code === 'LOST') return false
    if (!mayAdopt()) return false
    generation = step.generation
    seq = step.seq
    lowLanes.clear()
    bounds.clear()
    whole.clear()
    isRebuilding = false
    kept = generation
    unread.clear()
    isOpen = true
    logger.info({ queue: name, generation }, 'going on with the queue in Redis')
    return true
  }

  /** Where all of it was in, a better job may have pushed the tail out since, or it was forgotten. */
  const findBound = async (lane: number): Promise<Place | null> => {
    const { code, bound } = await look(lane, START, 1)
    return code === 'UNKNOWN' ? START : bound
  }

  const readOn = async (lane: LaneFacts) => {
    const from = bounds.get(lane.lane) ?? (whole.has(lane.lane) ? await findBound(lane.lane) : START)
    if (from) {
      const most = Math.min(MOST_ITEMS, Math.max(1, Math.ceil(options.sizes.window / 2)))
      const jobs = await readLane(pool, schema, lane.lane, from, most + 1)
      // The first that stays outside, or none: then all of the lane is in Redis.
      const bound = jobs[most] ?? null
      const { code, bound: now } = await step(mine =>
        index.refill(mine, lane, from, bound, jobs.slice(0, most)),
      )
      setBound(lane.lane, now)
      if (code === 'MOVED' && now) lowLanes.add(lane.lane)
    }
  }

  const forget = (lane: number) => {
    lowLanes.delete(lane)
    unread.delete(lane)
    if (lowLanes.size === 0) isRebuilding = false
  }

  return {
    name,
    root: index.root,
    get isOpen() {
      return isOpen
    },
    get isLive() {
      return isOpen && !isRebuilding
    },
    get generation() {
      return generation
    },
    get seq() {
      return seq
    },
    get begun() {
      return begunCount
    },
    lowLanes,
    bounds,
    open: mayAdopt =>
      serially(async () => {
        try {
          if (!(await adopt(mayAdopt))) await begin()
        } catch (error) {
          close(error) // Postgres may know of the next one already
          throw error
        }
      }),
    async place(how, jobs) {
      let placed = 0
      await inChunks(jobs, async chunk => {
        const answer = await step(mine => index.place(mine, how, chunk))
        placed += answer.placed
        for (const [lane, bound] of answer.bounds) setBound(lane, bound)
      })
      return placed
    },
    remove: ids => inChunks(ids, chunk => step(mine => index.remove(mine, chunk))),
    async setSlots(limit, free, turn) {
      await step(async mine => ({ code: await index.setSlots(mine, limit, free, turn) }))
    },
    async setSpread(next) {
      if (next.width === spread.width && next.strategy === spread.strategy) return
      await step(async mine => ({ code: await index.setMode(mine, next) }))
      spread = next
      logger.info({ queue: name, ...next }, 'jobs of this queue are spread by another rule')
    },
    unregister: worker =>
      serially(async () => {
        try {
          return await persistently(() => index.unregister(worker))
        } catch (error) {
          close(error) // its outbox row will be gone
          throw error
        }
      }),
    async refill(lane) {
      lowLanes.delete(lane.lane)
      try {
        await readOn(lane)
      } catch (error) {
        lowLanes.add(lane.lane) // nothing else would ask for it
        throw error
      }
      unread.delete(lane.lane)
      rebuilt++
      if (isRebuilding && (lowLanes.size === 0 || rebuilt >= FIRST_LANES)) isRebuilding = false
    },
    async keep() {
      if (!isOpen || unread.size > 0 || kept === generation) return
      const built = { generation, seq }
      await noteBuilt(pool, schema, options.holder, name, built)
      kept = built.generation
    },
    forget,
    async forgetLanes(lanes) {
      await inChunks(lanes, chunk => step(async mine => ({ code: await index.forgetLanes(mine, chunk) })))
      for (const lane of lanes) {
        forget(lane)
        bounds.delete(lane)
        whole.delete(lane)
      }
    },
    forgetLimits: limits =>
      inChunks(limits, chunk => step(async mine => ({ code: await index.forgetLimits(mine, chunk) }))),
    retire: () =>
      serially(async () => {
        const ended = generation
        isOpen = false
        const mine = { epoch: options.epoch(), generation: ended, seq: seq + 1 }
        // LOST: it is not there any more, or not what this relay knows.
        const code = await persistently(() => index.endGeneration(mine))
        if (code === 'FENCED') throw new FencedError('')
        logger.info({ queue: name, generation: ended }, 'nothing is left of the queue: Redis forgets it')
        return { dropped: drop(ended) }
      }),
    async beat() {
      return serially(async () => {
        if (!isOpen || isRebuilding) return undefined
        try {
          const beat = await persistently(() =>
            index.beat({ epoch: options.epoch(), generation, seq }, name, OVERDUE_MS),
          )
          if (beat.code === 'FENCED') throw new FencedError('')
          if (beat.code === 'LOST') throw new LostError()
          for (const lane of beat.lowLanes) lowLanes.add(lane)
          return beat
        } catch (error) {
          close(error)
          throw error
        }
      })
    },
    wantMore(lanes) {
      for (const lane of lanes) lowLanes.add(lane)
    },
    lanePage: look,
    giveUp: close,
  }
}

/**
 * A moment of trouble on the way is not the end: a step that was done after all answers AGAIN. An error that Redis answers is none on
 * the way, and the same again would not make it right.
 */
async function persistently<T>(call: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await call()
    } catch (error) {
      if (tries === TRIES || isAnswer(error)) throw error
      await pause(RETRY_MS * tries)
    }
  }
}
