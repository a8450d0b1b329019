/**
 * One term of a leading relay: reads the outbox together with the truth of what it names, brings Redis up to date, and forgets
 * the rows with the next read. Rows are applied before they are forgotten and truth is read after they are seen, so
 * repetition and late commits cannot matter. A queue that Redis cannot take is left out: it is built anew later, from Postgres.
 */

import { setTimeout as pause } from 'node:timers/promises'
import type { JobId } from '../job/job-id.ts'
import type { LaneFacts, ReadyJob } from '../job/ready-job.ts'
import type { Pool } from '../postgres/connect.ts'
import { describeLanes, raiseEpoch, readOutbox, readQueues, setAsleep } from '../postgres/relay-reads.ts'
import { isTransientError } from '../postgres/transient-error.ts'
import { lowChannel } from '../redis/names.ts'
import type { RedisStore } from '../redis/open-redis.ts'
import { queueIndex, type Spread } from '../redis/queue-index.ts'
import type { Logger } from '../runtime/logger.ts'
import { pauseMs } from '../runtime/retry.ts'
import { createWakeUp, FLOW_LOOK_MS } from '../runtime/wake-up.ts'
import { createAudit } from './audit-lanes.ts'
import { createQueueRelay, FencedError, type QueueRelay, type Sizes } from './queue-relay.ts'

export interface RelayMetrics {
  isLeader: boolean
  /** Age of the oldest outbox row that was not applied when it was last read. */
  lagMs: number
  /** Outbox rows applied since the start. */
  applied: number
  appliedPerSecond: number
  /** Workers woken by the relay's own steps. */
  bells: number
  /** Groups that do not move although they could. */
  stuckGroups: number
  queues: {
    name: string
    generation: string
    /** Workers take from it. */
    isLive: boolean
    /** Lanes that wait to be read in. */
    lanesToRead: number
    /** Ids in Redis, and ids that are on their way to a claim. */
    queued: number
    taken: number
  }[]
}

export interface RelayLoop {
  readonly epoch: string
  /** Something was written. */
  look(): void
  metrics(): Omit<RelayMetrics, 'stuckGroups'>
  /** Resolves when nothing of it is under way. */
  stop(): Promise<void>
}

export interface RelayLoopOptions {
  pool: Pool
  schema: string
  store: RedisStore
  deployment: string
  holder: string
  epoch: string
  /** What Redis holds may be gone on with. */
  mayAdopt: boolean
  /** The rule of queues for which none is set. */
  spreadOf: (settings: {
    mode: 'fanout' | 'balanced' | null
    strategy: Spread['strategy'] | null
    width: number | null
  }) => Spread
  sizes: Sizes
  /** Somebody else leads. */
  onLost: () => void
  logger: Logger
}

const MOST_ROWS = 500
/** Rows of transactions that commit in another order than they were numbered. */
const LATE_ROWS = 1000
const FULL_LOOK_MS = 250
/** How seldom it looks while rows come and none of their jobs has to be placed: they were hinted, or are left to Postgres. */
const MOST_LOOK_MS = 20
const BEAT_MS = 300
const QUEUES_MS = 1000
const LANES_A_TURN = 16
const MOST_AUDITED = 500
const PAUSES = { firstMs: 50, maxMs: 1000 }
const PROGRESS_MS = 1000
const AUDIT_MS = 1000
/** How long a new leader waits for Redis before it reads the outbox without it. */
const OPEN_FIRST_MS = 2000
/** Reading in so few lanes is over before anybody could look. */
const FEW_LANES = 100

export function startRelayLoop(options: RelayLoopOptions): RelayLoop {
  const { pool, schema, store, deployment, holder, logger } = options
  let { epoch } = options
  const queues = new Map<string, QueueRelay>()
  const facts = new Map<number, LaneFacts>()
  const queuesOfLimit = new Map<number, Set<string>>()
  /** Generations that workers have been told of. */
  const lively = new Set<string>()
  /** Queues that were not open when rows were read. */
  const passedBy = new Set<string>()
  const seen = new Map<string, { queued: number; taken: number }>()
  /** To be read again: what the audit found, and what was taken and not claimed. */
  const audited = new Map<JobId, 'relay' | 'audit'>()
  const fullLimits = new Map<number, Map<string, string>>() // limit → queue → turn
  let isStopped = false
  let turning: Promise<void> | undefined
  let mustTurn = false
  let done: string[] = []
  let newest = 0n
  let fullLookAt = 0
  let failures = 0
  let lookMs = FLOW_LOOK_MS
  let lagMs = 0
  let applied = 0
  let bells = 0
  let rate = { since: performance.now(), applied: 0, perSecond: 0 }
  const stopping = new AbortController()

  const lost = () => {
    if (isStopped) return
    isStopped = true
    options.onLost()
  }

  const knowLanes = async (lanes: Iterable<number>) => {
    const unknown = [...new Set(lanes)].filter(lane => !facts.has(lane))
    if (unknown.length === 0) return
    for (const lane of await describeLanes(pool, schema, unknown)) {
      facts.set(lane.lane, lane)
      for (const limit of [lane.limit, lane.keyLimit]) {
        if (limit === null) continue
        const known = queuesOfLimit.get(limit) ?? new Set()
        queuesOfLimit.set(limit, known.add(lane.queue))
      }
    }
  }

  /** Trouble with one queue is that queue's alone; a later leader ends the term. */
  const withQueue = async (queue: QueueRelay | undefined, work: (queue: QueueRelay) => Promise<unknown>) => {
    if (!queue?.isOpen) return
    try {
      await work(queue)
    } catch (error) {
      if (error instanceof FencedError) await settleFence(error)
      else if (queue.isOpen) logger.info({ err: error, queue: queue.name }, 'reading on failed; trying again')
      if (!queue.isOpen) reopen(queue, false)
    }
  }

  /** Redis knows a later epoch. Either somebody else leads, or Postgres was restored to an older state. */
  const settleFence = async (fenced: FencedError) => {
    const raised = await raiseEpoch(pool, schema, holder, fenced.epoch === '' ? epoch : fenced.epoch)
    if (raised === null) return lost()
    logger.warn({ from: epoch, to: raised }, 'Redis has seen a later epoch than Postgres: going above both')
    epoch = raised
  }

  const openQueue = async (queue: QueueRelay, mayAdopt: boolean) => {
    let isAhead = false // Redis has seen what Postgres has not: nothing there is to be gone on with
    for (let tries = 1; !isStopped && !queue.isOpen; tries++) {
      try {
        for (const [lane, { queue: name }] of facts) if (name === queue.name) facts.delete(lane)
        await queue.open(() => mayAdopt && !isAhead && !passedBy.has(queue.name))
        passedBy.delete(queue.name)
      } catch (error) {
        if (error instanceof FencedError) {
          isAhead = true
          await settleFence(error)
        } else
          logger.info({ err: error, queue: queue.name }, 'could not open the queue in Redis; trying again')
        await pause(pauseMs(tries, PAUSES), undefined, { signal: stopping.signal }).catch(() => undefined)
      }
    }
    look()
  }
  const opening = new Map<string, Promise<void>>()
  const reopen = (queue: QueueRelay, mayAdopt: boolean) => {
    if (opening.has(queue.name) || isStopped) return
    const opened = openQueue(queue, mayAdopt)
      .catch(error => logger.warn({ err: error, queue: queue.name }, 'opening a queue failed; trying again'))
      .finally(() => opening.delete(queue.name))
    opening.set(queue.name, opened)
  }

  const readQueuesAgain = async () => {
    for (const [name, settings] of await readQueues(pool, schema)) {
      const spread = options.spreadOf(settings)
      const known = queues.get(name)
      if (known) {
        await withQueue(known, queue => queue.setSpread(spread))
        continue
      }
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

  const turn = async (): Promise<void> => {
    const isFull = performance.now() > fullLookAt
    if (isFull) fullLookAt = performance.now() + FULL_LOOK_MS
    const bounds = new Map<number, string>()
    for (const queue of queues.values()) {
      for (const [lane, bound] of queue.bounds) if (bound) bounds.set(lane, bound.score)
    }
    const again = new Map([...audited].slice(0, MOST_AUDITED))
    const turns = new Map(fullLimits)
    fullLimits.clear()
    const read = await readOutbox(pool, schema, {
      holder,
      done,
      seqs: seqs(),
      from: isFull || newest < LATE_ROWS ? '0' : String(newest - BigInt(LATE_ROWS)),
      most: MOST_ROWS,
      bounds,
      jobs: [...again.keys()],
      limits: [...turns.keys()],
    })
    if (!read.isLeader) return lost()
    done = []
    for (const id of again.keys()) audited.delete(id)
    lagMs = read.oldestMs
    if (read.hasNewWorkers) await readQueuesAgain()

    // Other limits than before: lanes are of another kind now.
    const changed = new Set<string>()
    for (const lane of read.changedLanes) facts.delete(lane)
    await knowLanes([...read.ready.map(job => job.lane), ...read.changedLanes])
    for (const lane of read.changedLanes) changed.add(facts.get(lane)?.queue ?? '')
    if (changed.size > 0) facts.clear()

    const byQueue = new Map<string, { relay: ReadyJob[]; audit: ReadyJob[] }>()
    if (changed.size > 0) await knowLanes(read.ready.map(job => job.lane))
    // In one go: a queue that is being opened forgets its lanes meanwhile.
    for (const job of read.ready) {
      const name = facts.get(job.lane)?.queue ?? ''
      const jobs = byQueue.get(name) ?? { relay: [], audit: [] }
      byQueue.set(name, jobs)
      jobs[again.get(job.id) === 'audit' ? 'audit' : 'relay'].push(job)
    }
    if ([...byQueue.keys()].some(name => !queues.has(name))) await readQueuesAgain()
    for (const queue of queues.values()) {
      if (queue.isOpen || read.rows.length === 0) continue
      // These rows are forgotten without it: it must not go on with what Redis holds, and read what it may have passed.
      passedBy.add(queue.name)
      const jobs = byQueue.get(queue.name)
      queue.wantMore([...(jobs?.relay ?? []), ...(jobs?.audit ?? [])].map(job => job.lane))
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
          if (jobs && jobs.audit.length > 0) await queue.place('audit', jobs.audit)
          if (read.gone.length > 0) await queue.remove(read.gone)
          for (const worker of read.deadWorkers) {
            for (const id of await queue.unregister(worker)) audited.set(id, 'audit')
          }
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
    if (read.rows.length > 0) {
      wakeUp.onClaimed(read.rows.length)
      lookMs = placed > 0 ? FLOW_LOOK_MS : Math.min(MOST_LOOK_MS, lookMs * 2)
    }
    // What was applied is forgotten with the next look, whenever that is.
    if (read.rows.length === MOST_ROWS || hasLow || audited.size > 0) mustTurn = true
  }

  /** Read on in some of the lanes that run low. Answers whether there are more. */
  const refillLow = async (): Promise<boolean> => {
    let hasMore = false
    await Promise.all(
      [...queues.values()].map(queue =>
        withQueue(queue, async () => {
          const lanes = [...queue.lowLanes].slice(0, LANES_A_TURN)
          await knowLanes(lanes)
          for (const lane of lanes) {
            const known = facts.get(lane)
            if (known) await queue.refill(known)
            else queue.forget(lane)
          }
          if (queue.lowLanes.size > 0) hasMore = true
          if (queue.isLive && !lively.has(queue.generation)) {
            // Workers wait to hear of it.
            lively.add(queue.generation)
            await beat(queue)
          }
        }),
      ),
    )
    return hasMore
  }

  const run = async () => {
    while (mustTurn && !isStopped) {
      mustTurn = false
      try {
        await turn()
        failures = 0
      } catch (error) {
        failures++
        if (isTransientError(error))
          logger.info({ err: error }, 'the relay could not reach Postgres; trying again')
        else logger.error({ err: error }, 'a turn of the relay failed; trying again')
        mustTurn = true
        await pause(pauseMs(failures, PAUSES), undefined, { signal: stopping.signal }).catch(() => undefined)
      }
    }
  }
  const look = () => {
    mustTurn = true
    if (turning || isStopped) return
    follow(run)
  }
  const follow = (work: () => Promise<void>) => {
    turning = work().finally(() => {
      turning = undefined
      if (isStopped) return
      if (mustTurn) look()
      else wakeUp.onIdle()
    })
  }

  const wakeUp = createWakeUp({
    pollIntervalMs: FULL_LOOK_MS,
    setListening: isAsleep => setAsleep(pool, schema, holder, isAsleep),
    look,
    flowLookMs: () => lookMs,
    onError: error => logger.info({ err: error }, 'could not say whether the relay sleeps'),
  })

  const audit = createAudit({
    pool,
    schema,
    onSuspicious: id => {
      if (!audited.has(id)) audited.set(id, 'relay')
    },
  })

  const beat = async (queue: QueueRelay) => {
    const answer = await queue.beat()
    if (!answer) return
    seen.set(queue.name, answer)
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
      [...queues.values()].map(queue =>
        queue.isOpen ? withQueue(queue, beat) : Promise.resolve(reopen(queue, false)),
      ),
    )
    if (
      audited.size > 0 ||
      fullLimits.size > 0 ||
      [...queues.values()].some(queue => queue.lowLanes.size > 0)
    )
      look()
  }
  const every = async (ms: number, duty: () => Promise<unknown>) => {
    while (!isStopped) {
      try {
        await duty()
      } catch (error) {
        logger.info({ err: error }, 'a duty of the relay failed; trying again')
      }
      await pause(ms, undefined, { signal: stopping.signal }).catch(() => undefined)
    }
  }
  const showProgress = async () => {
    const now = performance.now()
    const seconds = (now - rate.since) / 1000
    rate = { since: now, applied, perSecond: seconds > 0 ? (applied - rate.applied) / seconds : 0 }
    for (const queue of queues.values()) {
      if (queue.lowLanes.size > FEW_LANES)
        logger.info({ queue: queue.name, lanesToRead: queue.lowLanes.size }, 'reading lanes into Redis')
    }
  }

  const subscribed = store.subscribe([lowChannel(deployment)], (_, text) => {
    const [root, lanes = ''] = text.split(' ')
    for (const queue of queues.values()) {
      if (queue.root === root) queue.wantMore(lanes.split(',').map(Number))
    }
    look()
  })
  subscribed.catch(error => logger.info({ err: error }, 'could not listen in Redis'))

  /** Rows that are read before a queue is open would force it to be built anew. */
  const openFirst = async () => {
    mustTurn = true
    await readQueuesAgain().catch(error => logger.info({ err: error }, 'could not read the queues yet'))
    await Promise.race([
      Promise.allSettled(opening.values()),
      pause(OPEN_FIRST_MS, undefined, { signal: stopping.signal }).catch(() => undefined),
    ])
  }
  follow(openFirst)

  const duties = [
    every(QUEUES_MS, readQueuesAgain),
    every(BEAT_MS, beatAll),
    every(PROGRESS_MS, showProgress),
    every(AUDIT_MS, async () => {
      for (const queue of queues.values()) if (queue.isLive) await audit.look(queue)
      if (audited.size > 0) look()
    }),
  ]

  return {
    get epoch() {
      return epoch
    },
    look: () => wakeUp.onRing(),
    metrics: () => ({
      isLeader: !isStopped,
      lagMs,
      applied,
      appliedPerSecond: rate.perSecond,
      bells,
      queues: [...queues.values()].map(queue => ({
        name: queue.name,
        generation: queue.generation,
        isLive: queue.isLive,
        lanesToRead: queue.lowLanes.size,
        queued: seen.get(queue.name)?.queued ?? 0,
        taken: seen.get(queue.name)?.taken ?? 0,
      })),
    }),
    async stop() {
      isStopped = true
      stopping.abort()
      wakeUp.stop()
      await Promise.allSettled([turning, ...duties, ...opening.values()])
      await forgetDone().catch(error =>
        logger.info({ err: error }, 'the last outbox rows will be applied once more'),
      )
    },
  }
}
