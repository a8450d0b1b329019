/**
 * One life of a worker, from registration to deregistration: wires the exchange loop, the runs, the wake-up, the
 * heartbeat and the upkeep together, and takes them down in order. A life whose lease ran out has died: nothing it says
 * counts any more, and `succession.ts` begins the next.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { LongshoreError } from '../job/errors.ts'
import type { JobId } from '../job/job-id.ts'
import type { Handler } from '../job/task.ts'
import { completeJob } from '../postgres/complete-job.ts'
import { openPool, type Pool } from '../postgres/connect.ts'
import { startHeartbeat } from '../postgres/heartbeat.ts'
import { type Listener, openListener } from '../postgres/listener.ts'
import type { PostgresConfig } from '../postgres/postgres-config.ts'
import { readGroupOf, readParents } from '../postgres/read-parents.ts'
import {
  readCancelled,
  readLanes,
  readLeases,
  registerWorker,
  setListening,
  setProperties,
  unregisterWorker,
  type WorkerFacts,
} from '../postgres/register-worker.ts'
import { channelName } from '../postgres/schema-name.ts'
import {
  type ClaimedJob,
  type Named,
  type Outcome,
  readPayload,
  settleAndClaim,
} from '../postgres/settle-and-claim.ts'
import { openRedis } from '../redis/open-redis.ts'
import type { RedisConfig } from '../redis/redis-config.ts'
import type { WorkerSettings } from '../runtime/config.ts'
import type { Logger } from '../runtime/logger.ts'
import { isTracing } from '../runtime/tracing.ts'
import { createWakeUp } from '../runtime/wake-up.ts'
import { startUpkeep, type Upkeep } from '../upkeep/start-upkeep.ts'
import { createExchangeLoop } from './exchange-loop.ts'
import { createGroupEnds } from './group-ends.ts'
import { createLeaseChecks } from './lease-checks.ts'
import { createRedisPath, type RedisPath } from './redis-path.ts'
import { Run, type RunSettings } from './run-job.ts'

export interface WorkerLife {
  readonly workerId: number
  /** Where its jobs come from at this moment. */
  readonly path: 'redis' | 'direct'
  /** Resolves if it dies; it must be ended all the same. */
  readonly died: Promise<void>
  /** Resolves when the claims that went by what it had before are over. */
  setProperties(had: Pick<WorkerFacts, 'properties' | 'constraintTags'>): Promise<void>
  end(deadlineMs: number): Promise<void>
  /** How many handlers are still inside; from now on `onReturn` is called as each of them returns. */
  handOver(onReturn: () => void): number
}

/** How long a stopping worker keeps trying to settle its last runs. */
const LAST_SETTLE_MS = 10_000
const UNREGISTER_MS = 2000
/** How long a job that must run alone waits for the settles of the others: somebody may hold one of them for minutes. */
const SETTLE_BEFORE_ALONE_MS = 2000
/** Completions in transactions of their own that are under way at once; more wait for their turn. */
const COMPLETE_CONNECTIONS = 5
/** How soon a cancelled job that is not known yet is looked for again. */
const CANCEL_LOOK_MS = 250
const MOST_KNOWN_LANES = 10_000
const PARENTS_PAGE = 1000
/** A relay that leads is heard by then; a worker that hears none goes straight to Postgres. */
const FIRST_BEAT_MS = 700
/** Workers whose way through Redis has closed do not all ask Postgres at the same moment. */
const DIRECT_WITHIN_MS = 300

export interface LifeOptions {
  pool: Pool
  postgres: PostgresConfig
  /** Where Redis is, and what the deployment is called there. */
  redis: { config: RedisConfig; deployment: string } | undefined
  schema: string
  facts: WorkerFacts
  settings: WorkerSettings
  handlers: ReadonlyMap<string, Handler>
  abortGraceMs: number
  maxResultBytes: number
  stallMs: number
  logger: Logger
}

/** `earlier`: the life that died before it; the handlers it left behind keep their permits. */
export async function beginLife(given: LifeOptions, earlier?: WorkerLife): Promise<WorkerLife> {
  const { pool, schema, handlers } = given
  const workerId = await registerWorker(pool, schema, given.facts)
  const logger = given.logger.child({ worker: workerId })
  /** The tasks of lanes. */
  const lanes = await readLanes(pool, schema, { tasks: given.facts.tasks })
  let isEnding = false // starts no more
  let isDead = false
  let onDeath: () => void = () => undefined
  const died = new Promise<void>(resolve => {
    onDeath = resolve
  })

  // Every run whose lease this worker holds in Postgres, also those whose outcome is not settled yet.
  const runs = new Map<JobId, Run>()
  // Claims whose lanes are being read: their jobs are not runs yet. One token per claim.
  const unstartedClaims = new Set<string>()
  const lanesBeingRead = new Set<Promise<unknown>>()
  const holds = (lease: { id: JobId; leaseToken: string }) =>
    runs.get(lease.id)?.claimed.leaseToken === lease.leaseToken || unstartedClaims.has(lease.leaseToken)
  let unreported = 0
  let onAllReported: (() => void) | undefined
  let inside = 0 // handlers that have not returned, and jobs that wait to run alone
  let onReturned: (() => void) | undefined
  let onReturn = () => loop.freePermit()
  const handlerReturned = () => {
    inside--
    onReturn()
    onReturned?.()
  }

  const runSettings: RunSettings = {
    workerId,
    abortGraceMs: given.abortGraceMs,
    maxResultBytes: given.maxResultBytes,
    logger,
    onOutcome: outcome => {
      if (isDead) runs.delete(outcome.id)
      else loop.settle(outcome)
      if (--unreported === 0) onAllReported?.()
    },
    onReturn: handlerReturned,
    complete: async (job, work) => {
      if (hasClosed) throw new LongshoreError('LEASE_LOST', 'the worker has given the job back')
      const { completion, group } = await completeJob(completePool(), schema, workerId, job, work)
      if (group !== undefined) groupEnds.add(group)
      return completion
    },
    readParents: (job, task, after) => readParents(pool, schema, job.id, task, after, PARENTS_PAGE),
    readGroup: job => readGroupOf(pool, schema, job.id),
    onCompleted: job => {
      path?.runEnded(job)
      if (holds(job)) runs.delete(job.id)
      if (--unreported === 0) onAllReported?.()
    },
  }

  /** Opened by the first completion: most workers never need it. */
  let completions: Pool | undefined
  let hasClosed = false
  const completePool = () => {
    completions ??= openPool(given.postgres, COMPLETE_CONNECTIONS, error =>
      logger.warn({ err: error }, 'a connection to Postgres broke; it is replaced'),
    )
    return completions
  }

  const startJob = (job: ClaimedJob) => {
    const handler = handlers.get(lanes.get(job.lane) ?? '')
    // Two that must run alone cannot wait for each other here: the one that waits would be rescued with the other.
    if (!handler || isEnding || (job.mustRunAlone && hasLonely)) return giveBack(job)
    unreported++
    inside++
    const run = new Run(job, handler, runSettings)
    runs.set(job.id, run)
    if (job.mustRunAlone)
      runAlone(run).catch(error => logger.error({ err: error }, 'running a job alone failed'))
    else start(run)
  }

  const start = (run: Run) => {
    if (run.claimed.payload !== '') run.start()
    else startLarge(run)
  }

  /**
   * A job that workers died with twice waits until everything else here has ended, and runs by itself: if it is the cause,
   * no other job shares its fate. Meanwhile nothing is claimed.
   */
  let hasLonely = false
  const runAlone = async (run: Run) => {
    hasLonely = true
    loop.holdClaims(true)
    logger.info({ job: run.claimed.id }, 'a job that was rescued twice waits to run alone')
    await loop.answered() // what those claims bring runs before
    await Promise.all(lanesBeingRead)
    await othersReturned(1)
    // What has ended would run again if this one took the process with it before it is settled.
    await Promise.race([loop.idle(), pause(SETTLE_BEFORE_ALONE_MS, undefined, { ref: false })])
    if (isEnding) run.giveUp()
    else start(run)
    await othersReturned(0)
    hasLonely = false
    loop.holdClaims(false)
  }
  /** Resolves when no more than `left` handlers are inside. */
  const othersReturned = async (left: number) => {
    while (inside > left) {
      await new Promise<void>(resolve => {
        onReturned = resolve
      })
    }
  }

  /** One after another: a worker that takes hundreds of large payloads at once would hold them all twice. */
  let lastLarge: Promise<void> = Promise.resolve()
  const startLarge = (run: Run) => {
    lastLarge = lastLarge.then(async () => {
      try {
        const payload = await readPayload(pool, schema, run.claimed)
        if (payload === undefined) throw new LongshoreError('WORKER_STOPPED', 'the lease is gone')
        if (isEnding) return run.giveUp() // a stop may have given it back meanwhile
        run.claimed.payload = payload
        run.start()
      } catch (error) {
        logger.info(
          { err: error, job: run.claimed.id },
          'could not read a large payload; giving the job back',
        )
        run.giveUp()
      }
    })
  }

  const giveBack = (job: ClaimedJob) => {
    loop.settle({ id: job.id, leaseToken: job.leaseToken, kind: 'released' })
    loop.freePermit()
  }

  const startJobs = (jobs: ClaimedJob[]) => {
    wakeUp.onClaimed(jobs.length)
    const unknown = jobs.filter(job => !lanes.has(job.lane))
    if (unknown.length === 0) {
      for (const job of jobs) startJob(job)
      return
    }
    const token = jobs[0]?.leaseToken ?? ''
    unstartedClaims.add(token)
    const reading = readLanes(pool, schema, { lanes: [...new Set(unknown.map(job => job.lane))] })
      .then(
        read => {
          if (lanes.size > MOST_KNOWN_LANES) lanes.clear()
          for (const [lane, task] of read) lanes.set(lane, task)
          for (const job of jobs) startJob(job)
        },
        error => {
          logger.warn({ err: error }, 'could not read the lanes of claimed jobs; giving the jobs back')
          for (const job of jobs) giveBack(job)
        },
      )
      .finally(() => {
        unstartedClaims.delete(token)
        lanesBeingRead.delete(reading)
      })
    lanesBeingRead.add(reading)
  }

  let cancelLook: NodeJS.Timeout | undefined
  /** Fire the signals of runs that somebody has cancelled. */
  const abortCancelled = () => {
    readCancelled(pool, schema, workerId).then(
      cancelled => {
        let isAnyUnknown = false
        for (const lease of cancelled) {
          const run = runs.get(lease.id)
          if (run?.claimed.leaseToken === lease.leaseToken)
            run.abort(new LongshoreError('JOB_CANCELLED', `job ${lease.id} was cancelled`))
          else isAnyUnknown = true
        }
        // Claimed, but the claim's answer is still under way: the next beat may be minutes off.
        if (!isAnyUnknown || isEnding) return
        clearTimeout(cancelLook)
        cancelLook = setTimeout(() => {
          if (!isEnding) abortCancelled()
        }, CANCEL_LOOK_MS).unref()
      },
      error =>
        logger.info({ err: error }, 'could not read which jobs were cancelled; the next beat asks again'),
    )
  }

  /** Give back runs that Postgres holds for this worker and that it knows nothing of. */
  const checkLeases = async () => {
    const before = new Map(runs)
    const leases = await readLeases(pool, schema, workerId)
    // Claims that are committed but not yet answered are among them: they are no strangers.
    await loop.answered()
    // Nor is what was settled while Postgres read.
    const unknown = leases.filter(
      lease => before.get(lease.id)?.claimed.leaseToken !== lease.leaseToken && !holds(lease),
    )
    for (const lease of unknown) loop.settle({ ...lease, kind: 'released' })
    if (unknown.length > 0)
      logger.warn({ jobs: unknown.length }, 'gave back jobs whose claim was answered to nobody')
  }

  const leaseChecks = createLeaseChecks(checkLeases, logger)

  const wakeUp = createWakeUp({
    pollIntervalMs: given.settings.pollIntervalMs,
    setListening: isListening => setListening(pool, schema, workerId, isListening),
    look: () => loop.look(),
    onError: error => logger.info({ err: error }, 'could not say whether this worker listens'),
  })
  inside = earlier?.handOver(handlerReturned) ?? 0
  const groupEnds = createGroupEnds(pool, schema, logger)
  const exchange = async (outcomes: readonly Outcome[], limit: number, named?: Named) => {
    const answer = await settleAndClaim(pool, schema, workerId, outcomes, limit, named, isTracing())
    for (const group of answer.groups) groupEnds.add(group)
    return answer
  }
  const loop = createExchangeLoop({
    settings: given.settings,
    taken: inside,
    exchange: (outcomes, limit) =>
      path?.isOpen ? path.exchange(outcomes, limit) : exchange(outcomes, limit),
    looksForFree: () => !path?.isOpen,
    onClaimed: startJobs,
    onSettled: outcome => {
      if (holds(outcome)) runs.delete(outcome.id)
    },
    onUnclearClaim: leaseChecks.begin,
    onDead: () => die(),
    onIdle: () => {
      if (path?.isOpen && !path.isWaiting) loop.look()
      else wakeUp.onIdle()
    },
    onFull: () => wakeUp.onFull(),
    logger,
  })

  /** Postgres has given this worker up: its jobs are being or have been rescued. */
  const die = () => {
    if (isDead) return
    isDead = true
    isEnding = true
    logger.warn(
      { leaseMs: given.facts.leaseMs, runs: runs.size },
      'this worker gave no sign of life for longer than its lease: its jobs go to others, its handlers are told by LEASE_LOST, and it begins anew. Was the machine suspended or cut off, or the event loop blocked for longer than `stall`? Else give it a longer `lease`',
    )
    wakeUp.stop()
    leaseChecks.stop()
    loop.stopClaiming()
    loop.close()
    closePath()
    const reason = new LongshoreError('LEASE_LOST', 'the worker lost its lease; the job runs elsewhere')
    for (const run of runs.values()) run.abort(reason)
    onDeath()
  }

  const heartbeat = startHeartbeat({
    postgres: given.postgres,
    schema,
    workerId,
    leaseMs: given.facts.leaseMs,
    stallMs: given.stallMs,
    onDead: die,
    onCancelled: abortCancelled,
    onError: error => logger.warn({ err: error }, 'the heartbeat missed a beat; trying again'),
  })
  const unregister = () => {
    const unregistered = unregisterWorker(pool, schema, workerId).catch(error =>
      logger.warn({ err: error }, 'could not deregister; the row is left behind'),
    )
    return Promise.race([unregistered, pause(UNREGISTER_MS, undefined, { ref: false })])
  }

  let path: RedisPath | undefined
  const closePath = async () => path?.close()
  const openPath = ({ config, deployment }: { config: RedisConfig; deployment: string }) =>
    createRedisPath({
      store: openRedis(config, error => logger.info({ err: error }, 'Redis')),
      deployment,
      workerId,
      facts: given.facts,
      running: () => inside,
      exchange,
      onBell: () => loop.look(),
      onChange: isOpen => {
        if (isEnding) return
        clearTimeout(directSoon)
        // Whoever beats does the upkeep as well.
        upkeep?.rest(isOpen)
        wakeUp.rest(isOpen)
        if (isOpen) loop.look()
        else directSoon = setTimeout(() => loop.look(), Math.random() * DIRECT_WITHIN_MS)
      },
      logger,
    })
  let directSoon: NodeJS.Timeout | undefined

  let upkeep: Upkeep | undefined
  const bell = channelName(schema, `worker_${workerId}`)
  let listener: Listener | undefined
  try {
    listener = await openListener({
      postgres: given.postgres,
      channels: [bell, channelName(schema, 'due')],
      onNotify: (channel, payload) => {
        if (channel !== bell) upkeep?.onDue()
        else if (payload === 'cancel') abortCancelled()
        else wakeUp.onRing()
      },
      onGap: () => {
        abortCancelled()
        wakeUp.onRing()
      },
      onError: error => logger.warn({ err: error }, 'the listening connection broke; reconnecting'),
    })
    await heartbeat.begun
  } catch (error) {
    wakeUp.stop()
    loop.close()
    await Promise.all([heartbeat.stop(), listener?.close()])
    await unregister()
    throw error
  }
  upkeep = startUpkeep({
    db: listener,
    pool,
    schema,
    holder: `worker ${workerId}`,
    rank: 'worker',
    logger,
  })
  if (given.redis) {
    path = openPath(given.redis)
    directSoon = setTimeout(() => loop.look(), FIRST_BEAT_MS)
  } else {
    loop.look()
  }

  const allReported = (ms: number) =>
    new Promise<void>(resolve => {
      if (unreported === 0) return resolve()
      const timer = setTimeout(resolve, ms)
      onAllReported = () => {
        clearTimeout(timer)
        resolve()
      }
    })

  const lastSettles = async () => {
    await loop.idle()
    await leaseChecks.finish()
    await loop.idle()
  }

  const end = async (deadlineMs: number) => {
    isEnding = true
    wakeUp.stop()
    leaseChecks.stop()
    loop.stopClaiming()
    clearTimeout(directSoon)
    // At once: whoever takes no more must not be rung for others.
    const pathClosed = closePath()
    // A claim under way may still bring jobs: they are given back at once.
    await allReported(deadlineMs)
    for (const run of runs.values()) run.abort(new LongshoreError('WORKER_STOPPED', 'the worker is stopping'))
    await allReported(given.abortGraceMs + 100)
    // What a dead life would settle is lost already.
    const unsettled = await Promise.race([
      died,
      lastSettles(),
      pause(LAST_SETTLE_MS, 'unsettled', { ref: false }),
    ])
    if (unsettled)
      logger.error('stopping with runs that could not be settled: somebody holds them, or Postgres is away')
    loop.close()
    const lastGroups = Promise.race([groupEnds.idle(), pause(UNREGISTER_MS, undefined, { ref: false })])
    await Promise.all([heartbeat.stop(), upkeep.stop(), pathClosed, lastGroups])
    // The row of a dead life goes when its jobs have been rescued.
    if (!isDead) await unregister()
    await listener.close()
    hasClosed = true
    await completions?.end()
  }

  let ended: Promise<void> | undefined
  return {
    workerId,
    get path() {
      return path?.isOpen ? 'redis' : 'direct'
    },
    died,
    async setProperties(had) {
      if (isEnding) return
      await setProperties(pool, schema, workerId, had)
      await path?.register()
      await loop.answered() // calls under way may go by what it had before
      if (!isEnding) loop.look()
    },
    end(deadlineMs) {
      ended ??= end(deadlineMs)
      return ended
    },
    handOver(onLeft) {
      onReturn = onLeft
      return inside
    },
  }
}
