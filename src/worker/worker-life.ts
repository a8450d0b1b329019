/**
 * One life of a worker, from registration to deregistration: wires the exchange loop, the runs, the wake-up, the
 * heartbeat and the upkeep together, and takes them down in order. A life whose lease ran out has died: nothing it says
 * counts any more, and `worker-restart.ts` begins the next.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { LongshoreError } from '../job/errors.ts'
import type { Handler } from '../job/task.ts'
import type { Pool } from '../postgres/connect.ts'
import { startHeartbeat } from '../postgres/heartbeat.ts'
import { POOLED } from '../postgres/listener.ts'
import type { PostgresConfig } from '../postgres/postgres-config.ts'
import { readGroupOf, readParents } from '../postgres/read-parents.ts'
import {
  drainWorker,
  readIsDrained,
  readLanes,
  readRuns,
  registerWorker,
  setProperties,
  unregisterWorker,
  type WorkerFacts,
} from '../postgres/register-worker.ts'
import { channelName } from '../postgres/schema-name.ts'
import { openRedis } from '../redis/open-redis.ts'
import type { RedisConfig } from '../redis/redis-config.ts'
import type { WorkerSettings } from '../runtime/config.ts'
import { createLagGauge } from '../runtime/event-loop-lag.ts'
import type { Logger } from '../runtime/logger.ts'
import { startUpkeep, type Upkeep } from '../upkeep/start-upkeep.ts'
import { createCancels } from './cancels.ts'
import { createCompletions } from './completions.ts'
import { createDirectSource } from './direct-source.ts'
import { createDrains } from './drains.ts'
import { createExchangeLoop } from './exchange-loop.ts'
import { createGroupEnds } from './group-ends.ts'
import type { JobLogs } from './job-logs.ts'
import type { Way } from './job-source.ts'
import { createLeaseChecks } from './lease-checks.ts'
import type { Meter } from './meter.ts'
import type { Outages } from './outages.ts'
import { createRedisSource } from './redis-source.ts'
import { createRuns } from './runs.ts'
import type { StuckHandlers } from './stuck-handlers.ts'
import { createSwitchedSource } from './switched-source.ts'
import type { ThreadPool } from './thread-pool.ts'

export interface WorkerLife {
  readonly workerId: number
  /** Where its jobs come from at this moment. */
  readonly path: Way
  readonly isDrained: boolean
  vitals(): Vitals
  /** Rejects when Redis is to be used and cannot be. */
  probeRedis(): Promise<void>
  /** Resolves if it dies; it must be ended all the same. */
  readonly died: Promise<void>
  /** Resolves when the claims that went by what it had before are over. */
  setProperties(had: Pick<WorkerFacts, 'properties' | 'constraintTags'>): Promise<void>
  /** Resolves when it claims nothing any more, or claims again. False: it has ended, and nothing was done. */
  drain(isToDrain: boolean): Promise<boolean>
  end(deadlineMs: number): Promise<void>
  /** How many handlers are still inside; from now on `onReturn` is called as each of them returns. */
  handOver(onReturn: () => void): number
}

/** How a life fares. */
export interface Vitals {
  /** It claims jobs, unless it is drained: neither dead nor about to end. */
  readonly isAlive: boolean
  /** Handlers that have not returned. */
  readonly inFlight: number
  /** The longest that the event loop was late in the last 15 to 30 seconds. */
  readonly lagMs: number
  /** How long ago Postgres last heard that it lives. */
  readonly sinceBeatMs: number
}

/** How long a stopping worker keeps trying to settle its last runs. */
const LAST_SETTLE_MS = 10_000
const UNREGISTER_MS = 2000
const PARENTS_PAGE = 1000

export interface LifeOptions {
  pool: Pool
  postgres: PostgresConfig
  /** Where notifications come from. */
  listen: PostgresConfig
  /** Where Redis is, and what the deployment is called there. */
  redis: { config: RedisConfig; deployment: string } | undefined
  schema: string
  facts: WorkerFacts
  settings: WorkerSettings
  handlers: ReadonlyMap<string, Handler>
  threads: ThreadPool
  maxCompletions: number
  abortGraceMs: number
  aloneDeadlineMs: number
  maxResultBytes: number
  stallMs: number
  /** Those of all its lives. */
  logs: JobLogs
  stuck: StuckHandlers
  meter: Meter
  memory: () => number
  logger: Logger
  /** For what handlers do: an error of theirs says nothing about our stores. */
  handlerLogger: Logger
  outages: Outages
}

/** `earlier`: the life that died before it. */
export async function beginLife(given: LifeOptions, earlier?: WorkerLife): Promise<WorkerLife> {
  const { pool, schema } = given
  const isDrained = earlier?.isDrained ?? false
  const worker = await registerWorker(pool, schema, { ...given.facts, isDrained })
  const workerId = worker.id
  const logger = given.logger.child({ worker: workerId })
  let isEnding = false // starts no more
  let isDead = false
  let onDeath: () => void = () => undefined
  const died = new Promise<void>(resolve => {
    onDeath = resolve
  })

  const { outages } = given
  const completions = createCompletions({
    postgres: given.postgres,
    connections: given.maxCompletions,
    schema,
    worker,
    logger,
  })
  const runs = createRuns({
    pool,
    schema,
    worker,
    handlers: given.handlers,
    lanes: await readLanes(pool, schema, { tasks: given.facts.tasks }),
    loop: () => loop,
    threads: given.threads,
    settings: {
      workerId,
      abortGraceMs: given.abortGraceMs,
      maxResultBytes: given.maxResultBytes,
      meter: given.meter,
      logger: given.handlerLogger.child({ worker: workerId }),
      complete: async (job, work) => {
        const { completion, group } = await completions.complete(job, work)
        if (group !== undefined) groupEnds.add(group)
        return completion
      },
      readParents: (job, task, after) => readParents(pool, schema, worker, job, task, after, PARENTS_PAGE),
      readGroup: job => readGroupOf(pool, schema, worker, job),
      logs: given.logs.of(worker),
      stuck: given.stuck,
    },
    aloneDeadlineMs: given.aloneDeadlineMs,
    onWaitingAlone: job => heartbeat.tell({ waitsAlone: job }),
    onCompleted: job => source.onCompleted(job),
    earlier,
    logger,
  })
  const cancels = createCancels({
    read: () => readRuns(pool, schema, worker, 'cancelled'),
    runs,
    logger,
  })

  const leaseChecks = createLeaseChecks({
    read: () => readRuns(pool, schema, worker, 'all'),
    runs,
    loop: () => loop,
    logger,
  })
  const groupEnds = createGroupEnds(pool, schema, logger)
  const look = () => loop.look()
  const direct = createDirectSource({
    pool,
    schema,
    worker,
    pollIntervalMs: given.settings.pollIntervalMs,
    look,
    onGroups: groups => {
      for (const group of groups) groupEnds.add(group)
    },
    logger,
  })
  const openRedisSource =
    ({ config, deployment }: { config: RedisConfig; deployment: string }) =>
    (onChange: (isOpen: boolean) => void) =>
      createRedisSource({
        store: openRedis(config, outages.redis.onTrouble, { onReady: outages.redis.outage.works }),
        onTrouble: outages.redis.onTrouble,
        onUnheard: outages.relay.failed,
        deployment,
        workerId,
        facts: given.facts,
        running: () => runs.inside,
        ask: direct.ask,
        look,
        onChange,
        logger,
      })
  const source = createSwitchedSource({
    direct,
    openRedis: given.redis && openRedisSource(given.redis),
    isResting: isDrained,
    look,
    answered: () => loop.answered(),
    onSwitch: isThroughRedis => {
      if (isThroughRedis) {
        outages.redis.outage.works()
        outages.relay.works()
      }
      // The relay does the upkeep as well.
      upkeep?.rest(isThroughRedis)
    },
  })
  const loop = createExchangeLoop({
    settings: given.settings,
    taken: runs.inside,
    source,
    onClaimed: runs.start,
    onSettled: runs.forget,
    onUnclearClaim: leaseChecks.begin,
    onDead: () => die(),
    pressure: () => ({
      memory: given.memory(),
      p99Ms: given.settings.latencyThresholdMs === undefined ? 0 : given.meter.p99Ms(),
    }),
    meter: given.meter,
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
    leaseChecks.stop()
    loop.stopClaims('stopping')
    loop.close()
    void source.close()
    runs.lose(new LongshoreError('LEASE_LOST', 'the worker lost its lease; the job runs elsewhere'))
    onDeath()
  }

  const drains = createDrains({
    isDrained,
    read: () => readIsDrained(pool, schema, workerId),
    apply: async isDrained => {
      if (isDrained) loop.stopClaims('drained')
      await source.rest(isDrained)
      if (!isDrained) loop.allowClaims('drained')
    },
    logger,
  })
  if (isDrained) loop.stopClaims('drained')

  const lag = createLagGauge()
  const bell = channelName(schema, `worker_${workerId}`)
  const heartbeat = startHeartbeat({
    postgres: given.listen,
    schema,
    worker,
    channels: [bell, channelName(schema, 'due')],
    onNotify: (channel, payload) => {
      if (channel !== bell) upkeep?.onDue()
      else if (payload === 'cancel') cancels.look()
      else if (payload === 'drain') drains.look()
      else direct.onRing(payload)
    },
    onGap: () => {
      outages.postgres.outage.works()
      cancels.look()
      drains.look()
      direct.onRing('')
    },
    onPooled: () => logger.info(POOLED),
    leaseMs: given.facts.leaseMs,
    stallMs: given.stallMs,
    onDead: die,
    onCancelled: cancels.look,
    onDrained: drains.look,
    figures: () => ({
      // What has ended and is not settled yet still runs for Postgres.
      available: Math.max(0, given.settings.maxConcurrentTasks - Math.max(runs.inside, runs.size)),
      max: given.settings.maxConcurrentTasks,
      memory: given.memory(),
      lagMs: lag.read(),
      completed: given.meter.completed,
      failed: given.meter.failed,
      stuck: given.stuck.count,
      stuckMs: Date.now() - (given.stuck.oldest?.since.getTime() ?? Date.now()),
    }),
    onError: error => logger.warn({ err: error }, 'the heartbeat missed a beat; trying again'),
    onAgain: outages.postgres.outage.works,
  })
  const unregister = () => {
    const unregistered = unregisterWorker(pool, schema, worker).catch(error =>
      logger.warn({ err: error }, 'could not deregister; the row is left behind'),
    )
    return Promise.race([unregistered, pause(UNREGISTER_MS, undefined, { ref: false })])
  }

  let upkeep: Upkeep | undefined
  try {
    await heartbeat.begun
  } catch (error) {
    loop.close()
    await Promise.all([source.close(), heartbeat.stop()])
    await unregister()
    throw error
  }
  upkeep = startUpkeep({
    db: pool,
    pool,
    schema,
    holder: { name: `worker ${workerId}`, secret: worker.secret },
    rank: 'worker',
    logger,
  })
  source.begin()

  const lastSettles = async () => {
    await loop.idle()
    await runs.lanesRead()
    await leaseChecks.finish()
    await loop.idle()
  }

  const end = async (deadlineMs: number) => {
    isEnding = true
    runs.end()
    leaseChecks.stop()
    cancels.stop()
    loop.stopClaims('stopping')
    // At once: bells must go to other workers.
    const sourceClosed = source.close()
    // A claim under way may still bring jobs: they are given back at once.
    await runs.allReported(deadlineMs)
    runs.abortAll(new LongshoreError('WORKER_STOPPED', 'the worker is stopping'))
    await runs.allReported(given.abortGraceMs + 100)
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
    await Promise.all([heartbeat.stop(), upkeep.stop(), sourceClosed, lastGroups])
    // The row of a dead life goes when its jobs have been rescued.
    if (!isDead) await unregister()
    lag.stop()
    await completions.close()
  }

  let ended: Promise<void> | undefined
  return {
    workerId,
    get path() {
      return source.way
    },
    died,
    get isDrained() {
      return drains.isDrained
    },
    vitals: () => ({
      isAlive: !isEnding,
      inFlight: runs.inside,
      lagMs: lag.peak(),
      sinceBeatMs: heartbeat.sinceBeatMs(),
    }),
    probeRedis: source.probe,
    async drain(isToDrain) {
      if (isEnding || !(await drainWorker(pool, schema, workerId, isToDrain))) return false
      await drains.look()
      return true
    },
    async setProperties(had) {
      if (isEnding) return
      await setProperties(pool, schema, worker, had)
      await source.onPropertiesChanged()
      await loop.answered() // calls under way may go by what it had before
      if (!isEnding) loop.look()
    },
    end(deadlineMs) {
      ended ??= end(deadlineMs)
      return ended
    },
    handOver: runs.handOver,
  }
}
