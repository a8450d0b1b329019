/**
 * Jobs through Redis: the worker registers in each of its queues, takes ids there, and claims those jobs from Postgres.
 * Open while the worker hears the beats of a relay for every one of its queues.
 */
import type { JobId } from '../job/job-id.ts'
import type { WorkerFacts } from '../postgres/register-worker.ts'
import type { Exchange, Lease, Named, Outcome } from '../postgres/settle-and-claim.ts'
import { createHints } from '../redis/hints.ts'
import { parseBeat, parseBell, sayAnew, type Told } from '../redis/messages.ts'
import { beatChannel, bellChannel, lowChannel } from '../redis/names.ts'
import type { RedisStore } from '../redis/open-redis.ts'
import { type QueueIndex, queueIndex, type Refused } from '../redis/queue-index.ts'
import { isBroken } from '../redis/replies.ts'
import type { Logger } from '../runtime/logger.ts'
import type { JobSource } from './job-source.ts'

export interface RedisSource extends JobSource {
  /** A relay is heard for each of the worker's queues, and Redis knows the worker there. */
  readonly isOpen: boolean
}

interface Queue {
  readonly name: string
  readonly index: QueueIndex
  /** Of the last beat. */
  generation: string
  heardAt: number
  /** In which generation this worker is registered. */
  registered: string | undefined
  /** Its last take came back short: since then Redis takes it for idle. */
  isWaiting: boolean
  /** Taken, and claimed or found gone: told with the next take. */
  done: JobId[]
  /** Lane → slots that are free again. */
  freed: Map<number, number>
}

/** A relay beats three times a second. */
const STALE_MS = 1500
const LOOK_MS = 250
/** Another relay leads within four seconds after one that died. */
const UNHEARD_MS = 5000
/** After this long without a sound the connection is taken for dead. */
const DEAF_MS = 5000
/** A locked job is put back after a while: its lock may be held for minutes. */
const FIRST_PUT_BACK_MS = 10
const MOST_PUT_BACK_MS = 1000
const MOST_DONE = 1000
const UNREGISTER_MS = 500
/** How long a worker claims directly from Postgres before it asks Redis again: more workers may have come. */
const STRAIGHT_MS = 500
const NOTHING: Exchange = {
  claimed: [],
  busy: new Set(),
  lost: new Set(),
  wait: null,
  refused: [],
  ready: [],
  groups: [],
}

const NONE: ReadonlySet<number> = new Set()

interface Offer extends Told {
  queue: Queue
  heardAt: number
}
/** After that others are likely to have taken it. */
const OFFER_MS = 50
/** Where jobs flow, the next take comes sooner and tells it. */
const DONE_MS = 10

export function createRedisSource(options: {
  store: RedisStore
  deployment: string
  workerId: number
  facts: WorkerFacts
  /** How many jobs run here. */
  running: () => number
  /** Directly from Postgres, or the jobs that are named. */
  ask: (outcomes: readonly Outcome[], limit: number, named?: Named) => Promise<Exchange>
  /** There may be something to take. */
  look: () => void
  /** The way has opened or closed. */
  onChange: (isOpen: boolean) => void
  /** Redis could not be asked or told something. */
  onTrouble: (error: unknown) => void
  /** Redis is there, but for some seconds no relay has been heard. Told again and again. */
  onUnheard: () => void
  logger: Logger
}): RedisSource {
  const { store, deployment, workerId, facts, onTrouble, logger } = options
  const { give } = createHints(store, deployment, onTrouble)
  const queues: Queue[] = facts.queues.map(name => ({
    name,
    index: queueIndex(store, deployment, name),
    generation: '',
    heardAt: Number.NEGATIVE_INFINITY,
    registered: undefined,
    isWaiting: false,
    done: [],
    freed: new Map(),
  }))
  let isOpen = false
  let isClosed = false
  let isResting = false
  let heardAt = performance.now()
  let first = 0 // the queue whose turn it is
  let straightUntil = 0 // or until a claim comes back short
  let cameShort = false // and Redis has not been told
  /** Runs under limits that were taken here: their slots are given back here. */
  const limitedRuns = new Map<string, { queue: Queue; lane: number }>()
  let hasTakenLimited = false
  const putBacks = new Map<JobId, number>()
  let offer: Offer | undefined
  let isRung = false // and has not looked since
  let openableSince = performance.now()
  /** Of jobs that are to be put back. */
  const timers = new Map<JobId, NodeJS.Timeout>()

  const isFresh = (queue: Queue) =>
    queue.registered !== undefined &&
    queue.registered === queue.generation &&
    performance.now() - queue.heardAt < STALE_MS

  const review = () => {
    if (isClosed) return
    const wasOpen = isOpen
    isOpen = !isResting && queues.every(isFresh)
    if (isOpen === wasOpen) return
    logger.info(isOpen ? 'jobs come through Redis' : 'jobs come directly from Postgres')
    options.onChange(isOpen)
  }

  const register = async (queue: Queue) => {
    const { generation } = queue
    const code = await queue.index.register(generation, workerId, facts)
    queue.isWaiting = false
    straightUntil = 0
    if (code !== 'OK') return
    if (isResting || isClosed) return void (await queue.index.unregister(workerId))
    if (queue.registered !== generation) {
      queue.done = []
      queue.freed.clear()
    }
    queue.registered = generation
  }

  const hearOffer = (text: string) => {
    const told = parseBell(text)
    const queue = told && queues.find(({ registered }) => registered === told.generation)
    // Several bells before it has looked are about several jobs, of several queues perhaps: a take looks at them all.
    offer = !isRung && queue ? { ...told, queue, heardAt } : undefined
    isRung = true
  }

  const hear = (channel: string, text: string) => {
    heardAt = performance.now()
    if (isClosed) return
    if (channel !== beatChannel(deployment)) {
      hearOffer(text)
      return options.look()
    }
    const beat = parseBeat(text)
    const queue = beat && queues.find(({ name }) => name === beat.queue)
    if (!queue) return
    queue.generation = beat.generation
    queue.heardAt = performance.now()
    if (isResting || queue.registered === queue.generation) return review()
    register(queue).then(
      () => {
        review()
        // A generation that begins within a moment leaves the way open: no bell would come before a first take.
        if (isOpen) options.look()
      },
      error => giveUp(queue, error),
    )
  }
  store.subscribe([beatChannel(deployment), bellChannel(deployment, workerId)], hear).catch(onTrouble)

  const watch = setInterval(() => {
    review()
    if (isOpen || isResting || !store.isConnected()) openableSince = performance.now()
    else if (performance.now() - openableSince > UNHEARD_MS) options.onUnheard()
    if (performance.now() - heardAt < DEAF_MS) return
    heardAt = performance.now()
    store.resubscribe()
  }, LOOK_MS).unref()

  /** Until the next beat. */
  const giveUp = (queue: Queue, error: unknown) => {
    onTrouble(error)
    askAnew(queue, error)
    leaveUntilBeat(queue)
  }
  /** What the worker cannot use is no use to others either: the relay begins the queue anew. */
  const askAnew = (queue: Queue, error: unknown) => {
    if (!isBroken(error)) return
    logger.warn(
      { err: error, queue: queue.name },
      'what Redis holds of the queue makes no sense: the relay is asked to build it anew',
    )
    store.publish(lowChannel(deployment), sayAnew(queue.index.root, queue.generation)).catch(onTrouble)
  }
  /** Redis does not know this worker: another generation has begun, or it was taken for dead. */
  const beUnknown = (queue: Queue) => {
    logger.info(
      { queue: queue.name },
      'the queue in Redis has begun anew, or this worker was forgotten there',
    )
    leaveUntilBeat(queue)
  }
  const leaveUntilBeat = (queue: Queue) => {
    queue.registered = undefined
    review()
  }

  const countUp = (counts: Map<number, number>, lane: number, by: number) => {
    const count = (counts.get(lane) ?? 0) + by
    if (count === 0) counts.delete(lane)
    else counts.set(lane, count)
  }

  const takeFrom = async (queue: Queue, limit: number, ending: Map<number, number>) => {
    const generation = queue.registered
    if (generation === undefined) return undefined
    const done = queue.done.splice(0, MOST_DONE)
    const { freed } = queue
    queue.freed = new Map()
    // The lanes of one queue only: Postgres is asked for all that the worker may run.
    const straight = limit === 0 || queues.length > 1 ? undefined : cameShort ? 'short' : 'may'
    if (straight === 'short') cameShort = false
    try {
      const taken = await queue.index.take({
        generation,
        worker: workerId,
        limit,
        running: options.running(),
        freed,
        ending,
        done,
        ...(straight ? { straight } : {}),
      })
      if (taken.code === 'OK') {
        // Answers come in the order of the takes; what their claims say later does not.
        if (limit > 0) queue.isWaiting = taken.ids.length < limit && !taken.goesStraight
        if (taken.goesStraight) straightUntil = performance.now() + STRAIGHT_MS
        return taken
      }
      beUnknown(queue)
    } catch (error) {
      // It may have been done all the same: what was told twice does no harm, what was taken is found by the relay.
      queue.done.unshift(...done)
      giveUp(queue, error)
    }
    return undefined
  }

  /** Whether there may be more. */
  const takeOffered = async ({ queue, ...job }: Offer, limit: number): Promise<boolean> => {
    const done = queue.done.splice(0, MOST_DONE)
    try {
      const { code, hasMore } = await queue.index.takeOffered({
        generation: queue.registered as string,
        worker: workerId,
        limit,
        running: options.running(),
        job,
        done,
      })
      if (code === 'OK') {
        queue.isWaiting = limit > 1 && !hasMore
        return hasMore
      }
      beUnknown(queue)
    } catch (error) {
      queue.done.unshift(...done)
      giveUp(queue, error)
    }
    return false
  }

  const putBack = (queue: Queue, jobs: Refused[]) => {
    const generation = queue.registered
    if (jobs.length === 0 || generation === undefined) return
    queue.index.putBack(generation, workerId, jobs).catch(error => {
      logger.info({ err: error }, 'could not put jobs back; the relay finds them')
      askAnew(queue, error)
    })
  }

  const putBackLater = (queue: Queue, job: Refused) => {
    const times = (putBacks.get(job.id) ?? 0) + 1
    if (putBacks.size > MOST_DONE) putBacks.clear()
    putBacks.set(job.id, times)
    const timer = setTimeout(
      () => {
        timers.delete(job.id)
        putBack(queue, [job])
      },
      Math.min(MOST_PUT_BACK_MS, FIRST_PUT_BACK_MS * 2 ** Math.min(times, 10)),
    ).unref()
    timers.set(job.id, timer)
  }

  const key = (job: Lease) => `${job.id} ${job.leaseToken}`

  const runEnded = (job: Lease) => {
    if (limitedRuns.size === 0) return
    const run = limitedRuns.get(key(job))
    if (!run) return
    limitedRuns.delete(key(job))
    countUp(run.queue.freed, run.lane, 1)
  }

  /** Slots that are free again must not wait for the next job to be wanted. */
  const tellFreed = () => {
    for (const queue of queues) if (queue.freed.size > 0) takeFrom(queue, 0, new Map())
  }

  const goesStraight = () => isOpen && performance.now() < straightUntil

  const exchangeStraight = async (outcomes: readonly Outcome[], limit: number): Promise<Exchange> => {
    const answer = await options.ask(outcomes, limit)
    if (answer.claimed.length < limit && answer.wait !== 'more') {
      straightUntil = 0
      cameShort = true
    }
    settled(outcomes, answer)
    return answer
  }

  const exchange = async (outcomes: readonly Outcome[], limit: number): Promise<Exchange> => {
    if (limit > 0 && goesStraight()) return exchangeStraight(outcomes, limit)
    if (limit > 0) {
      const one = offer
      offer = undefined
      isRung = false
      if (one && isToBeClaimed(one)) return exchangeOffered(one, outcomes, limit)
    }
    const ending = new Map<Queue, Map<number, number>>()
    if (limitedRuns.size > 0) {
      for (const outcome of outcomes) {
        const run = limitedRuns.get(key(outcome))
        if (!run) continue
        const counts = ending.get(run.queue) ?? new Map<number, number>()
        ending.set(run.queue, counts)
        countUp(counts, run.lane, 1)
      }
    }
    const ids: JobId[] = []
    const lanes: number[] = []
    const from: Queue[] = []
    const limited = new Set<number>()
    first = (first + 1) % queues.length
    for (let n = 0; n < queues.length && ids.length < limit; n++) {
      const queue = queues[(first + n) % queues.length] as Queue
      const taken = await takeFrom(queue, limit - ids.length, ending.get(queue) ?? new Map())
      if (!taken) continue
      for (const [lane, used] of taken.limited) {
        limited.add(lane)
        hasTakenLimited = true
        // These have passed from the old run to the new one already.
        if (used > 0) countUp(queue.freed, lane, -used)
      }
      for (const [at, id] of taken.ids.entries()) {
        ids.push(id)
        lanes.push(taken.lanes[at] as number)
        from.push(queue)
      }
    }
    if (ids.length === 0) {
      if (limit > 0 && goesStraight()) return exchangeStraight(outcomes, limit)
      // The way was lost in the middle: this call goes straight.
      const answer =
        limit > 0 && !isOpen
          ? await options.ask(outcomes, limit)
          : outcomes.length > 0
            ? await options.ask(outcomes, 0)
            : NOTHING
      settled(outcomes, answer)
      return answer
    }
    const answer = await claimTaken(outcomes, limit, { ids, lanes, from, limited })
    if (goesStraight()) tellDone()
    return ids.length === limit && answer.wait === null ? { ...answer, wait: 'more' } : answer
  }

  const claimTaken = async (
    outcomes: readonly Outcome[],
    limit: number,
    taken: { ids: JobId[]; lanes: number[]; from: Queue[]; limited: ReadonlySet<number> },
  ) => {
    const { ids, lanes, from } = taken
    // Taken once more: where it stood before is no news.
    if (timers.size > 0)
      for (const id of ids) {
        clearTimeout(timers.get(id))
        timers.delete(id)
      }
    const putAllBack = () => {
      for (const queue of queues) {
        putBack(
          queue,
          ids.filter((_, at) => from[at] === queue).map(id => ({ id, answer: 'unclear' })),
        )
      }
    }
    try {
      const answer = await options.ask(outcomes, limit, { ids, lanes })
      settled(outcomes, answer)
      // Postgres has not looked at the jobs: they are as ready as they were.
      if (answer.wait === 'dead') putAllBack()
      else accept(taken, answer)
      return answer
    } catch (error) {
      putAllBack()
      throw error
    }
  }

  /** Where there are limits, a take has to look anyway, and passes slots on. */
  const isToBeClaimed = ({ queue, heardAt: at }: Offer) =>
    isOpen && queue.registered !== undefined && !hasTakenLimited && performance.now() - at < OFFER_MS

  /** Nothing waits for the take: whether the job is handed over is for Postgres to say. */
  const exchangeOffered = async (one: Offer, outcomes: readonly Outcome[], limit: number) => {
    const taken = takeOffered(one, limit)
    const answer = await claimTaken(outcomes, limit, {
      ids: [one.id],
      lanes: [one.lane],
      from: [one.queue],
      limited: NONE,
    })
    const hasMore = await taken
    return hasMore && answer.wait === null ? { ...answer, wait: 'more' as const } : answer
  }

  /** With the next take it would come too late: the relay would look for what was taken. */
  const tellDone = () => {
    for (const queue of queues) if (queue.done.length > 0) takeFrom(queue, 0, new Map())
  }

  const settled = (outcomes: readonly Outcome[], answer: Exchange) => {
    for (const outcome of outcomes) if (!answer.busy.has(outcome.id)) runEnded(outcome)
    if (answer.ready.length > 0 && queues.length === 1) give((queues[0] as Queue).name, answer.ready)
    tellFreedSoon()
  }

  let isTelling = false
  /** The next take is mostly under way by then, and carries it. */
  const tellFreedSoon = () => {
    if (isTelling || queues.every(queue => queue.freed.size === 0)) return
    isTelling = true
    setImmediate(() => {
      isTelling = false
      if (!isClosed) tellFreed()
    })
  }

  let doneTimer: NodeJS.Timeout | undefined
  /** Until Redis knows that a job is claimed, both stores count its slot: a slot that is freed would wake no worker. */
  const tellDoneSoon = () => {
    if (doneTimer) return
    doneTimer = setTimeout(() => {
      doneTimer = undefined
      if (!isClosed) tellDone()
    }, DONE_MS).unref()
  }

  /** `limited`: which of the lanes are under limits. */
  const accept = (
    {
      ids,
      lanes,
      from,
      limited,
    }: { ids: JobId[]; lanes: number[]; from: Queue[]; limited: ReadonlySet<number> },
    answer: Exchange,
  ) => {
    const claimed = new Map(answer.claimed.map(job => [job.id, job]))
    const refused = new Map(answer.refused.map(job => [job.id, job]))
    const back = new Map<Queue, Refused[]>()
    for (const [at, id] of ids.entries()) {
      const queue = from[at] as Queue
      const lane = lanes[at] as number
      const no = refused.get(id)
      if (no?.answer === 'full') {
        back.set(queue, [...(back.get(queue) ?? []), no])
        continue
      }
      if (no) {
        putBackLater(queue, no)
        continue
      }
      queue.done.push(id)
      if (putBacks.size > 0) putBacks.delete(id)
      if (!limited.has(lane)) continue
      const job = claimed.get(id)
      if (job) {
        limitedRuns.set(key(job), { queue, lane })
        tellDoneSoon()
      } else countUp(queue.freed, lane, 1)
    }
    for (const [queue, jobs] of back) putBack(queue, jobs)
  }

  /** What stands in its queues is offered to others. */
  const leave = async () => {
    const left = queues.map(async queue => {
      if (queue.registered === undefined) return
      await takeFrom(queue, 0, new Map())
      queue.registered = undefined
      await queue.index.unregister(workerId)
    })
    const timeout = new Promise(resolve => setTimeout(resolve, UNREGISTER_MS).unref())
    await Promise.race([Promise.allSettled(left), timeout])
  }

  return {
    get isOpen() {
      return isOpen
    },
    way: 'redis',
    get looksForFree() {
      return goesStraight()
    },
    exchange,
    onClaimed: () => undefined,
    onIdle() {
      // Otherwise Redis knows that it waits, in each of its queues, and rings it.
      if (!queues.every(queue => queue.isWaiting)) options.look()
    },
    onFull: () => undefined,
    onCompleted(job) {
      runEnded(job)
      tellFreedSoon()
    },
    async onPropertiesChanged() {
      await Promise.all(
        queues.map(queue =>
          queue.registered === undefined ? undefined : register(queue).catch(error => giveUp(queue, error)),
        ),
      )
    },
    async rest(isToRest) {
      isResting = isToRest
      if (isToRest) {
        review()
        await leave()
        return
      }
      await Promise.all(queues.map(queue => register(queue).catch(error => giveUp(queue, error))))
      review()
    },
    async probe() {
      await Promise.all(queues.map(queue => queue.index.probe()))
    },
    async close() {
      isClosed = true
      isOpen = false
      clearInterval(watch)
      for (const timer of timers.values()) clearTimeout(timer)
      await leave()
      store.close()
    },
  }
}
