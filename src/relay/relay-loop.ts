/**
 * When a leading relay takes the steps of its term: at once while rows come, more seldom while it has nothing to place, and asleep
 * until it is rung when there are none; the duties beside at their own pace.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { setAsleep } from '../postgres/relay-reads.ts'
import { isTransientError } from '../postgres/transient-error.ts'
import { parseLow } from '../redis/messages.ts'
import { hintChannel, lowChannel } from '../redis/names.ts'
import { isRedisAway } from '../redis/redis-trouble.ts'
import { allTexts } from '../redis/scripts.ts'
import { pauseMs } from '../runtime/retry.ts'
import { createWakeUp, FLOW_LOOK_MS } from '../runtime/wake-up.ts'
import { hearHints } from './hear-hints.ts'
import { createRelayTerm, type RelayTermOptions } from './relay-term.ts'

export interface RelayMetrics {
  isLeader: boolean
  /** Age of the oldest outbox row that was not applied when it was last read. */
  lagMs: number
  /** Outbox rows applied since the start. */
  applied: number
  appliedPerSecond: number
  /** Workers woken by the relay's own steps. */
  bells: number
  /** Hints of producers that were of no use: not in the right form, or of a queue that is not open. */
  ignoredHints: number
  /** Groups that do not move although they could. */
  stuckGroups: number
  queues: {
    name: string
    generation: string
    /** Generations begun since this term began: after the first each is one that was given up. */
    generations: number
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
  /** How much it keeps in memory. */
  readonly known: { queues: number; lanes: number; limits: number }
  /** Something was written. */
  look(): void
  metrics(): Omit<RelayMetrics, 'stuckGroups'>
  /** Resolves when nothing of it is under way. */
  stop(): Promise<void>
}

/** For rows that committed late. Rarer where it takes long, beside a snapshot that is held open: a tenth of the time, and no rarer than this. */
const FULL_LOOK_MS = 250
const FULL_LOOK_SHARE = 10
const FULL_LOOK_AT_LEAST_EVERY_MS = 2000
/** How seldom it looks while rows come and none of their jobs has to be placed: they were hinted, or are left to Postgres. */
const MOST_LOOK_MS = 20
const BEAT_MS = 300
const QUEUES_MS = 1000
const PAUSES = { firstMs: 50, maxMs: 1000 }
const PROGRESS_MS = 1000
const AUDIT_MS = 1000
const ECHO_MS = 1000
const DEAF_MS = 5000
/** How long a new leader waits for Redis before it reads the outbox without it. */
const OPEN_FIRST_MS = 2000
/** Reading in so few lanes is over before anybody could look. */
const FEW_LANES = 100

/** A restart of all workers of a queue is no reason to forget it. */
const UNUSED_MS = 60_000

export function startRelayLoop(
  options: Omit<RelayTermOptions, 'onOpened' | 'unusedMs'> & { unusedMs?: number },
): RelayLoop {
  const { pool, schema, store, deployment, holder, logger } = options
  let isStopped = false
  let turning: Promise<void> | undefined
  let mustTurn = false
  let fullLookAt = 0
  let failures = 0
  let lookMs = FLOW_LOOK_MS
  let rate = { since: performance.now(), applied: 0, perSecond: 0 }
  const stopping = new AbortController()

  const look = () => {
    mustTurn = true
    if (turning || isStopped) return
    follow(run)
  }
  const term = createRelayTerm({
    ...options,
    unusedMs: options.unusedMs ?? UNUSED_MS,
    onLost: () => {
      if (isStopped) return
      isStopped = true
      options.onLost()
    },
    onOpened: look,
  })

  const turn = async () => {
    const since = performance.now()
    const isFull = since > fullLookAt
    const { rows, placed, hasMore } = await term.turn(isFull)
    const took = performance.now() - since
    if (isFull)
      fullLookAt =
        since + Math.max(FULL_LOOK_MS, Math.min(FULL_LOOK_AT_LEAST_EVERY_MS, FULL_LOOK_SHARE * took))
    if (rows > 0) {
      wakeUp.onClaimed(rows)
      lookMs = placed > 0 ? FLOW_LOOK_MS : Math.min(MOST_LOOK_MS, lookMs * 2)
    }
    if (hasMore) mustTurn = true
  }
  const run = async () => {
    while (mustTurn && !isStopped) {
      mustTurn = false
      try {
        await turn()
        failures = 0
      } catch (error) {
        failures++
        if (isTransientError(error) || isRedisAway(error))
          logger.info({ err: error }, 'the relay could not reach Postgres or Redis; trying again')
        else logger.error({ err: error }, 'a turn of the relay failed; trying again')
        mustTurn = true
        await pause(pauseMs(failures, PAUSES), undefined, { signal: stopping.signal }).catch(() => undefined)
      }
    }
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
    const { applied } = term
    rate = { since: now, applied, perSecond: seconds > 0 ? (applied - rate.applied) / seconds : 0 }
    for (const queue of term.queues.values()) {
      if (queue.lowLanes.size > FEW_LANES)
        logger.info({ queue: queue.name, lanesToRead: queue.lowLanes.size }, 'reading lanes into Redis')
    }
  }
  /** It says nothing to itself, and hears it: a connection that only listens does not notice that it is dead. */
  const stayHearing = async () => {
    if (performance.now() - heardAt > DEAF_MS) {
      heardAt = performance.now()
      store.resubscribe()
    }
    await store.publish(hintChannel(deployment), '')
  }
  const lookIf = async (hasFound: Promise<boolean>) => {
    if (await hasFound) look()
  }

  const hints = hearHints({ store, deployment, queues: term.queues, isInUse: term.isInUse, logger })
  const channels = [lowChannel(deployment), hintChannel(deployment)]
  let heardAt = performance.now()
  const subscribed = store.subscribe(channels, (channel, text) => {
    heardAt = performance.now()
    if (isStopped || text === '') return
    if (channel === hintChannel(deployment)) return hints.hear(text)
    const told = parseLow(text)
    if (!told) return
    if ('anew' in told) return term.beginAnew(told.root, told.anew)
    term.wantMore(told.root, told.lanes)
    look()
  })
  subscribed.catch(error => logger.info({ err: error }, 'could not listen in Redis'))

  /** Rows that are read before a queue is open would force it to be built anew. */
  const openFirst = async () => {
    mustTurn = true
    // Where Redis cannot be reached yet, the first step that finds its script missing loads all of them.
    store.load?.(allTexts()).catch(error => logger.info({ err: error }, 'could not load the scripts yet'))
    await term.readQueues().catch(error => logger.info({ err: error }, 'could not read the queues yet'))
    await Promise.race([
      term.opened(),
      pause(OPEN_FIRST_MS, undefined, { signal: stopping.signal }).catch(() => undefined),
    ])
  }
  follow(openFirst)

  const duties = [
    every(QUEUES_MS, term.readQueues),
    every(BEAT_MS, () => lookIf(term.beat())),
    every(PROGRESS_MS, showProgress),
    every(ECHO_MS, stayHearing),
    every(AUDIT_MS, () => lookIf(term.audit())),
  ]

  return {
    get epoch() {
      return term.epoch
    },
    get known() {
      return { queues: term.queues.size, ...term.known }
    },
    look: () => wakeUp.onRing(),
    metrics: () => ({
      isLeader: !isStopped,
      lagMs: term.lagMs,
      applied: term.applied,
      appliedPerSecond: rate.perSecond,
      bells: term.bells,
      ignoredHints: hints.ignored,
      queues: [...term.queues.values()].map(queue => ({
        name: queue.name,
        generation: queue.generation,
        generations: queue.begun,
        isLive: queue.isLive,
        lanesToRead: queue.lowLanes.size,
        queued: term.seen.get(queue.name)?.queued ?? 0,
        taken: term.seen.get(queue.name)?.taken ?? 0,
      })),
    }),
    async stop() {
      isStopped = true
      stopping.abort()
      wakeUp.stop()
      store.unsubscribe() // so that producers learn that no leader hears them
      await Promise.allSettled([turning, ...duties])
      await term.stop()
    },
  }
}
