/**
 * The steps of one term of a leading relay, each to be taken when `relay-loop.ts` says so: read the outbox together with the truth
 * of what it names, bring Redis up to date, and forget the rows with the next read. Rows are applied before they are forgotten
 * and truth is read after they are seen, so repetition and late commits cannot matter. A queue that Redis cannot take is left
 * out: it is built anew later, from Postgres.
 */

import { setTimeout as pause } from 'node:timers/promises'
import type { JobId } from '../job/job-id.ts'
import type { LaneFacts, ReadyJob } from '../job/ready-job.ts'
import type { Pool } from '../postgres/connect.ts'
import {
  describeLanes,
  noteEnded,
  type QueueSettings,
  raiseEpoch,
  readOutbox,
  readQueuesToKeep,
} from '../postgres/relay-reads.ts'
import type { Holder } from '../postgres/secret.ts'
import type { RedisStore } from '../redis/open-redis.ts'
import { type How, queueIndex, type Spread } from '../redis/queue-index.ts'
import { BrokenIndexError, isAnswer } from '../redis/replies.ts'
import type { Logger } from '../runtime/logger.ts'
import { pauseMs } from '../runtime/retry.ts'
import { createAudit } from './audit-lanes.ts'
import { createQueueRelay, FencedError, type QueueRelay, type Sizes } from './queue-relay.ts'

/** What one look at the outbox has come to. */
export interface Turn {
  /** Outbox rows applied. */
  rows: number
  /** Jobs that Redis did not know. */
  placed: number
  /** There is more to do at once. */
  hasMore: boolean
}

export interface RelayTerm {
  readonly epoch: string
  /** As old as the oldest outbox row that was not applied when it was last read. */
  readonly lagMs: number
  /** Outbox rows applied since the start. */
  readonly applied: number
  /** Workers woken by its own steps. */
  readonly bells: number
  readonly queues: ReadonlyMap<string, QueueRelay>
  /** A worker serves the queue, or Redis may hold jobs of it. The others cost nothing until one of both changes. */
  isInUse(queue: string): boolean
  /** Ids in Redis, and ids that are on their way to a claim, at the last beat of each queue. */
  readonly seen: ReadonlyMap<string, { queued: number; taken: number }>
  /** How much it keeps in memory of lanes and limits. */
  readonly known: { lanes: number; limits: number }
  /** Finds queues that are new, and begins to open them. */
  readQueues(): Promise<void>
  /** Resolves when each queue has been opened that was being opened. */
  opened(): Promise<void>
  /** Resolves when nothing is left in Redis of the queues that it has forgotten so far. */
  dropped(): Promise<void>
  /** Applies the next outbox rows. Without `isFull` it does not look for those that committed very late. */
  turn(isFull: boolean): Promise<Turn>
  /** Tells workers that it leads, and looks for what was lost. Answers whether there is something for a turn to do; so does `audit`. */
  beat(): Promise<boolean>
  /** Compares a stretch of some lanes. */
  audit(): Promise<boolean>
  /** Workers have emptied these lanes of the queue with this key. */
  wantMore(root: string, lanes: readonly number[]): void
  /** A worker, or the doctor, has found that this generation of the queue with this key makes no sense. */
  beginAnew(root: string, generation: string): void
  /** Resolves when nothing of it is under way. */
  stop(): Promise<void>
}

export interface RelayTermOptions {
  pool: Pool
  schema: string
  store: RedisStore
  deployment: string
  holder: Holder
  epoch: string
  /** What Redis holds may be gone on with. */
  mayAdopt: boolean
  /** The rule of queues for which none is set. */
  spreadOf: (settings: QueueSettings) => Spread
  sizes: Sizes
  /** For how long a queue is not in use before Redis forgets it. */
  unusedMs: number
  /** Somebody else leads. */
  onLost: () => void
  /** A queue has been opened: there is something for a turn to do. */
  onOpened: () => void
  logger: Logger
}

const MOST_ROWS = 500
/** Rows of transactions that commit in another order than they were numbered. */
const LATE_ROWS = 1000
const LANES_A_TURN = 16
/** Lanes that are asked for at once: numbers that Postgres does not know must not hold up the others. */
const LANES_A_LOOK = 1000
const MOST_AUDITED = 500
const PAUSES = { firstMs: 50, maxMs: 1000 }

export function createRelayTerm(options: RelayTermOptions): RelayTerm {
  const { pool, schema, store, deployment, holder, logger } = options
  let { epoch } = options
  const queues = new Map<string, QueueRelay>()
  const facts = new Map<number, LaneFacts>()
  /** The lanes of `facts`, by queue. */
  const lanesOf = new Map<string, Set<number>>()
  const queuesOfLimit = new Map<number, Set<string>>()
  /** The generation of each queue that workers have been told of. */
  const lively = new Map<string, string>()
  /** Queues that were not open when rows were read. */
  const passedBy = new Set<string>()
  const seen = new Map<string, { queued: number; taken: number }>()
  let served: ReadonlySet<string> = new Set()
  /** What each queue was at its last beat, by generation and step. */
  const beaten = new Map<string, string>()
  const stateOf = (queue: QueueRelay) => `${queue.generation} ${queue.seq}`
  const isInUse = (name: string) => {
    const queue = queues.get(name)
    const last = seen.get(name)
    return (
      served.has(name) ||
      !queue?.isOpen ||
      queue.lowLanes.size > 0 ||
      beaten.get(name) !== stateOf(queue) ||
      !last ||
      last.queued + last.taken > 0
    )
  }
  /** To be read again: what the audit found, and what was taken and not claimed. */
  const audited = new Map<JobId, 'check' | 'audit'>()
  const fullLimits = new Map<number, Map<string, string>>() // limit → queue → turn
  /** Since when queues are not in use; those that are being retired; and what is left to drop of them. */
  const unusedSince = new Map<string, number>()
  const retiring = new Set<string>()
  const dropping = new Set<Promise<void>>()
  /** Lanes and limits have been forgotten so often: what Postgres said of them before is no longer true. */
  let forgets = 0
  let hasReadRelayed = false
  let isStopped = false
  let done: string[] = []
  let newest = 0n
  let lagMs = 0
  let applied = 0
  let bells = 0
  const stopping = new AbortController()

  const lost = () => {
    if (isStopped) return
    isStopped = true
    options.onLost()
  }

  const forgetFact = (lane: number) => {
    const known = facts.get(lane)
    if (!known || !facts.delete(lane)) return
    const others = lanesOf.get(known.queue)
    others?.delete(lane)
    if (others?.size === 0) lanesOf.delete(known.queue)
  }

  /** Answers which of them Postgres does not know. */
  const knowLanes = async (lanes: Iterable<number>): Promise<number[]> => {
    const asked = new Set([...lanes].filter(lane => !facts.has(lane)))
    if (asked.size === 0) return []
    const before = forgets
    const described = await describeLanes(pool, schema, [...asked])
    if (forgets !== before) return knowLanes(asked)
    for (const lane of described) {
      asked.delete(lane.lane)
      facts.set(lane.lane, lane)
      lanesOf.set(lane.queue, (lanesOf.get(lane.queue) ?? new Set()).add(lane.lane))
      for (const limit of [lane.limit, lane.keyLimit]) {
        if (limit === null) continue
        const known = queuesOfLimit.get(limit) ?? new Set()
        queuesOfLimit.set(limit, known.add(lane.queue))
      }
    }
    return [...asked]
  }

  /** Trouble with one queue is that queue's alone; a later leader ends the term. */
  const withQueue = async (queue: QueueRelay | undefined, work: (queue: QueueRelay) => Promise<unknown>) => {
    if (!queue?.isOpen) return
    try {
      await work(queue)
    } catch (error) {
      if (error instanceof FencedError) await settleFence(error)
      else if (queue.isOpen) logger.info({ err: error, queue: queue.name }, 'reading on failed; trying again')
    }
    if (!queue.isOpen) reopen(queue, false)
  }

  /** Redis knows a later epoch. Either somebody else leads, or Postgres was restored to an older state. */
  const settleFence = async (fenced: FencedError) => {
    const raised = await raiseEpoch(pool, schema, holder, fenced.epoch === '' ? epoch : fenced.epoch)
    if (raised === null) return lost()
    logger.warn({ from: epoch, to: raised }, 'Redis has seen a later epoch than Postgres: going above both')
    epoch = raised
  }

  const openQueue = async (queue: QueueRelay, mayAdopt: boolean) => {
    let isStrange = false // Redis has seen what Postgres has not, or makes no sense: nothing there is to be gone on with
    for (let tries = 1; !isStopped && !queue.isOpen; tries++) {
      try {
        for (const lane of lanesOf.get(queue.name) ?? []) forgetFact(lane)
        await queue.open(() => mayAdopt && !isStrange && !passedBy.has(queue.name))
        passedBy.delete(queue.name)
      } catch (error) {
        if (error instanceof FencedError || isAnswer(error)) isStrange = true
        if (error instanceof FencedError) await settleFence(error)
        else logger.info({ err: error, queue: queue.name }, 'could not open the queue in Redis; trying again')
        await pause(pauseMs(tries, PAUSES), undefined, { signal: stopping.signal }).catch(() => undefined)
      }
    }
    options.onOpened()
  }
  const opening = new Map<string, Promise<void>>()
  const reopen = (queue: QueueRelay, mayAdopt: boolean) => {
    if (opening.has(queue.name) || queues.get(queue.name) !== queue || isStopped) return
    const opened = openQueue(queue, mayAdopt)
      .catch(error => logger.warn({ err: error, queue: queue.name }, 'opening a queue failed; trying again'))
      .finally(() => opening.delete(queue.name))
    opening.set(queue.name, opened)
  }

  /** Queues that workers serve, of which Redis may hold something, and these: they have jobs. */
  const readQueuesAgain = async (withJobs: Iterable<string> = []) => {
    const jobs = new Set(withJobs)
    const isFirst = !hasReadRelayed
    const kept = await readQueuesToKeep(pool, schema, [...new Set([...queues.keys(), ...jobs])], isFirst)
    hasReadRelayed = true
    served = new Set([...kept].filter(([, { isServed }]) => isServed).map(([name]) => name))
    for (const [name, settings] of kept) {
      if (retiring.has(name)) continue
      const spread = options.spreadOf(settings)
      const known = queues.get(name)
      if (known) {
        await withQueue(known, queue => queue.setSpread(spread))
        continue
      }
      // It was forgotten meanwhile.
      if (!isFirst && !settings.isServed && !jobs.has(name)) continue
      const queue = createQueueRelay({
        name,
        index: queueIndex(store, deployment, name),
        pool,
        schema,
        holder,
        epoch: () => epoch,
        spread,
        sizes: options.sizes,
        logger,
      })
      queues.set(name, queue)
      reopen(queue, options.mayAdopt)
    }
  }

  const seqs = () =>
    new Map([...queues.values()].filter(queue => queue.isOpen).map(queue => [queue.name, queue.seq]))

  /** The last rows that were applied need not be applied again by whoever leads next. */
  const forgetDone = async () => {
    if (done.length === 0) return
    const nothing = { from: '0', most: 0, bounds: new Map(), jobs: [], limits: [] }
    await readOutbox(pool, schema, { holder, done, seqs: seqs(), ...nothing })
  }

  const turn = async (isFull: boolean): Promise<Turn> => {
    const bounds = new Map<number, string>()
    for (const queue of queues.values()) {
      for (const [lane, bound] of queue.bounds) bounds.set(lane, bound.score)
    }
    const again = new Map([...audited].slice(0, MOST_AUDITED))
    const turns = new Map(fullLimits)
    fullLimits.clear()
    const read = await readOutbox(pool, schema, {
      holder,
      done,
      seqs: done.length > 0 ? seqs() : new Map(),
      from: isFull || newest < LATE_ROWS ? '0' : String(newest - BigInt(LATE_ROWS)),
      most: MOST_ROWS,
      bounds,
      jobs: [...again.keys()],
      limits: [...turns.keys()],
    })
    if (!read.isLeader) {
      lost()
      return { rows: 0, placed: 0, hasMore: false }
    }
    done = []
    for (const id of again.keys()) audited.delete(id)
    lagMs = read.oldestMs
    if (read.hasNewWorkers) await readQueuesAgain()

    const gone = forgetFacts(read.changedLanes, read.goneLimits)
    await knowLanes([...read.ready.map(job => job.lane), ...read.changedLanes])
    // Other limits than before: lanes are of another kind now. Or Postgres does not have them any more.
    const changed = new Set<string>()
    for (const lane of read.changedLanes) {
      const queue = facts.get(lane)?.queue
      if (queue !== undefined) changed.add(queue)
      else gone.lanes.add(lane)
    }
    laneAudit.forgetLanes(gone.lanes)
    if (changed.size > 0) {
      facts.clear()
      lanesOf.clear()
    }

    const byQueue = new Map<string, Record<How, ReadyJob[]>>()
    if (changed.size > 0) await knowLanes(read.ready.map(job => job.lane))
    // In one go: a queue that is being opened forgets its lanes meanwhile.
    for (const job of read.ready) {
      const name = facts.get(job.lane)?.queue ?? ''
      const jobs = byQueue.get(name) ?? { relay: [], check: [], audit: [] }
      byQueue.set(name, jobs)
      jobs[again.get(job.id) ?? 'relay'].push(job)
    }
    byQueue.delete('')
    if ([...byQueue.keys()].some(name => !queues.has(name))) await readQueuesAgain(byQueue.keys())
    for (const queue of queues.values()) {
      if (queue.isOpen || read.rows.length === 0) continue
      // These rows are forgotten without it: it must not go on with what Redis holds, and read what it may have passed.
      passedBy.add(queue.name)
      const jobs = byQueue.get(queue.name)
      queue.wantMore(Object.values(jobs ?? {}).flatMap(of => of.map(job => job.lane)))
    }
    let placed = 0
    await Promise.all(
      [...queues.values()].map(queue =>
        withQueue(queue, async () => {
          if (changed.has(queue.name)) {
            await queue.open(() => false)
            return
          }
          const jobs = byQueue.get(queue.name)
          if (jobs && jobs.relay.length > 0) placed += await queue.place('relay', jobs.relay)
          if (jobs && jobs.check.length > 0) await queue.place('check', jobs.check)
          if (jobs && jobs.audit.length > 0) await queue.place('audit', jobs.audit)
          if (read.gone.length > 0 && isInUse(queue.name)) await queue.remove(read.gone)
          for (const worker of read.deadWorkers) {
            for (const id of await queue.unregister(worker)) audited.set(id, 'audit')
          }
          const isOf = (queueOf: string | undefined) => (queueOf ?? queue.name) === queue.name
          const lanes = [...gone.lanes].filter(lane => isOf(gone.queueOf.get(lane)))
          if (lanes.length > 0) await queue.forgetLanes(lanes)
          const limits = read.goneLimits.filter(limit => gone.queuesOf.get(limit)?.has(queue.name) ?? true)
          if (limits.length > 0) await queue.forgetLimits(limits)
          for (const { limit, free } of read.limits) {
            if (!queuesOfLimit.get(limit)?.has(queue.name)) continue
            const turn = turns.get(limit)
            const wasNamed = !turn || read.rows.length > 0
            const known = turn?.get(queue.name)
            if (known !== undefined || wasNamed) await queue.setSlots(limit, free, known ?? null)
          }
        }),
      ),
    )
    // Only now: a step that failed has closed its queue, and everything of it will be read again.
    done = read.rows
    for (const row of read.rows) if (BigInt(row) > newest) newest = BigInt(row)
    applied += read.rows.length
    const hasLow = await refillLow()
    await retireUnused()
    // What was applied is forgotten with the next look, whenever that is.
    return {
      rows: read.rows.length,
      placed,
      hasMore: read.rows.length === MOST_ROWS || hasLow || audited.size > 0,
    }
  }

  /** What is known of these lanes, and of lanes under these limits, may not be true any more. Answers in which queues they were. */
  const forgetFacts = (lanes: readonly number[], limits: readonly number[]) => {
    const queueOf = new Map(lanes.map(lane => [lane, facts.get(lane)?.queue]))
    const queuesOf = new Map(limits.map(limit => [limit, queuesOfLimit.get(limit)]))
    if (lanes.length + limits.length > 0) forgets++
    for (const lane of lanes) forgetFact(lane)
    for (const limit of limits) queuesOfLimit.delete(limit)
    if (limits.length > 0) {
      const under = new Set<number | null>(limits)
      for (const [lane, { keyLimit }] of facts) if (keyLimit !== null && under.has(keyLimit)) forgetFact(lane)
    }
    return { lanes: new Set<number>(), queueOf, queuesOf }
  }

  /** Queues that have not been in use for a while go from Redis and from memory. The next job or worker brings them back. */
  const retireUnused = async () => {
    const now = performance.now()
    for (const queue of [...queues.values()]) {
      if (isInUse(queue.name)) unusedSince.delete(queue.name)
      else if (!unusedSince.has(queue.name)) unusedSince.set(queue.name, now)
      if (now - (unusedSince.get(queue.name) ?? Number.POSITIVE_INFINITY) < options.unusedMs) continue
      if (unusedSince.has(queue.name)) await retire(queue)
    }
  }

  const leaveLimit = (limit: number, queue: string) => {
    const under = queuesOfLimit.get(limit)
    under?.delete(queue)
    if (under?.size === 0) queuesOfLimit.delete(limit)
  }

  const retire = async (queue: QueueRelay) => {
    const { name, generation } = queue
    retiring.add(name)
    queues.delete(name)
    for (const known of [seen, beaten, unusedSince, lively, passedBy]) known.delete(name)
    for (const lane of lanesOf.get(name) ?? []) {
      const { limit, keyLimit } = facts.get(lane) as LaneFacts
      for (const of of [limit, keyLimit]) if (of !== null) leaveLimit(of, name)
      forgetFact(lane)
    }
    laneAudit.forgetQueue(name)
    try {
      const { dropped } = await queue.retire()
      // The row in Postgres stays until Redis holds nothing of it: the next leading relay drops what is left.
      const over = dropped
        .then(() => noteEnded(pool, schema, holder, name, generation))
        .catch(error =>
          logger.info({ err: error, queue: name }, 'a generation is left behind in Redis for now'),
        )
        .finally(() => dropping.delete(over))
      dropping.add(over)
    } catch (error) {
      if (error instanceof FencedError) await settleFence(error)
      else logger.info({ err: error, queue: name }, 'Redis could not forget a queue; trying again')
      queues.set(name, queue)
    } finally {
      retiring.delete(name)
    }
  }

  /** Read on in some of the lanes that run low. Answers whether there are more. */
  const refillLow = async (): Promise<boolean> => {
    let hasMore = false
    await Promise.all(
      [...queues.values()].map(queue =>
        withQueue(queue, async () => {
          for (const lane of await knowLanes([...queue.lowLanes].slice(0, LANES_A_LOOK))) queue.forget(lane)
          for (const lane of [...queue.lowLanes].slice(0, LANES_A_TURN)) {
            const known = facts.get(lane)
            if (known?.queue === queue.name) await queue.refill(known)
            else if (known) queue.forget(lane)
          }
          if (queue.lowLanes.size > 0) hasMore = true
          await queue.keep()
          if (queue.isLive && lively.get(queue.name) !== queue.generation) {
            // Workers wait to hear of it.
            lively.set(queue.name, queue.generation)
            await beat(queue)
          }
        }),
      ),
    )
    return hasMore
  }

  const laneAudit = createAudit({
    pool,
    schema,
    factsOf: lane => facts.get(lane),
    onSuspicious: id => {
      if (!audited.has(id)) audited.set(id, 'check')
    },
  })

  const beat = async (queue: QueueRelay) => {
    const state = stateOf(queue) // of before: a step that is taken meanwhile makes it be looked at once more
    const answer = await queue.beat()
    if (!answer) return
    const unknown = await knowLanes(answer.lowLanes)
    if (unknown.length > 0) await queue.forgetLanes(unknown)
    const strange = answer.lowLanes.find(lane => (facts.get(lane)?.queue ?? queue.name) !== queue.name)
    if (strange !== undefined)
      return queue.giveUp(new BrokenIndexError(`Redis wants lane ${strange}, which this queue does not have`))
    seen.set(queue.name, answer)
    beaten.set(queue.name, state)
    bells += answer.bells
    for (const id of answer.overdue) audited.set(id, 'audit')
    for (const { limit, turn } of answer.fullLimits) {
      const of = fullLimits.get(limit) ?? new Map()
      fullLimits.set(limit, of.set(queue.name, turn))
      queuesOfLimit.set(limit, (queuesOfLimit.get(limit) ?? new Set()).add(queue.name))
    }
  }

  const beatAll = async () => {
    await Promise.all(
      [...queues.values()]
        .filter(queue => isInUse(queue.name))
        .map(queue => (queue.isOpen ? withQueue(queue, beat) : Promise.resolve(reopen(queue, false)))),
    )
    return (
      audited.size > 0 || fullLimits.size > 0 || [...queues.values()].some(queue => queue.lowLanes.size > 0)
    )
  }

  return {
    get epoch() {
      return epoch
    },
    get lagMs() {
      return lagMs
    },
    get applied() {
      return applied
    },
    get bells() {
      return bells
    },
    queues,
    isInUse,
    seen,
    get known() {
      return { lanes: facts.size, limits: queuesOfLimit.size }
    },
    readQueues: () => readQueuesAgain(),
    async opened() {
      await Promise.allSettled(opening.values())
    },
    async dropped() {
      await Promise.allSettled(dropping)
    },
    turn,
    beat: beatAll,
    async audit() {
      for (const queue of queues.values())
        if (queue.isLive && isInUse(queue.name)) await withQueue(queue, laneAudit.look)
      return audited.size > 0
    },
    wantMore(root, lanes) {
      for (const queue of queues.values()) if (queue.root === root) queue.wantMore(lanes)
    },
    beginAnew(root, generation) {
      for (const queue of queues.values()) {
        if (queue.root !== root || !queue.isOpen || queue.generation !== generation) continue
        queue.giveUp(
          new BrokenIndexError('a worker or the doctor found that what Redis holds makes no sense'),
        )
        reopen(queue, false)
      }
    },
    async stop() {
      isStopped = true
      stopping.abort()
      await Promise.allSettled([...opening.values(), ...dropping])
      await forgetDone().catch(error =>
        logger.info({ err: error }, 'the last outbox rows will be applied once more'),
      )
    },
  }
}
