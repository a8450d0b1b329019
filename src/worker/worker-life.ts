/**
 * One life of a worker, from registration to deregistration: wires the exchange loop, the runs, the wake-up, the beat and
 * the upkeep together, and takes them down in order.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { LongshoreError } from '../job/errors.ts'
import type { JobId } from '../job/job-id.ts'
import type { Handler } from '../job/task.ts'
import type { Pool } from '../postgres/connect.ts'
import { openListener } from '../postgres/listener.ts'
import type { PostgresConfig } from '../postgres/postgres-config.ts'
import {
  beat,
  readLanes,
  readLeases,
  registerWorker,
  setListening,
  setProperties,
  unregisterWorker,
  type WorkerFacts,
} from '../postgres/register-worker.ts'
import { channelName } from '../postgres/schema-name.ts'
import { type ClaimedJob, readPayload, settleAndClaim } from '../postgres/settle-and-claim.ts'
import type { WorkerSettings } from '../runtime/config.ts'
import type { Logger } from '../runtime/logger.ts'
import { startUpkeep, type Upkeep } from '../upkeep/start-upkeep.ts'
import { createExchangeLoop } from './exchange-loop.ts'
import { Run, type RunSettings } from './run-job.ts'
import { createWakeUp } from './wake-up.ts'

export interface WorkerLife {
  readonly workerId: number
  /** Resolves when the claims that went by what it had before are over. */
  setProperties(had: Pick<WorkerFacts, 'properties' | 'constraintTags'>): Promise<void>
  end(deadlineMs: number): Promise<void>
}

const BEAT_MS = 5000
/** How long a stopping worker keeps trying to settle its last runs. */
const LAST_SETTLE_MS = 10_000
const UNREGISTER_MS = 2000
/** A lost reply may have committed a claim; its transaction may still be under way when we first look. */
const LEASE_CHECKS_MS = [1000, 5000, 30_000]

export async function beginLife(given: {
  pool: Pool
  postgres: PostgresConfig
  schema: string
  facts: WorkerFacts
  settings: WorkerSettings
  handlers: ReadonlyMap<string, Handler>
  abortGraceMs: number
  maxResultBytes: number
  logger: Logger
}): Promise<WorkerLife> {
  const { pool, schema, handlers } = given
  const workerId = await registerWorker(pool, schema, given.facts)
  const logger = given.logger.child({ worker: workerId })
  let lanes = await readLanes(pool, schema)
  let isEnding = false

  // Every run whose lease this worker holds in Postgres, also those whose outcome is not settled yet.
  const runs = new Map<JobId, Run>()
  // Claims whose lanes are being read: their jobs are not runs yet. One token per claim.
  const unstartedClaims = new Set<string>()
  const holds = (lease: { id: JobId; leaseToken: string }) =>
    runs.get(lease.id)?.claimed.leaseToken === lease.leaseToken || unstartedClaims.has(lease.leaseToken)
  let unreported = 0
  let onAllReported: (() => void) | undefined

  const runSettings: RunSettings = {
    abortGraceMs: given.abortGraceMs,
    maxResultBytes: given.maxResultBytes,
    logger,
    onOutcome: outcome => {
      loop.settle(outcome)
      if (--unreported === 0) onAllReported?.()
    },
    onReturn: () => loop.freePermit(),
  }

  const startJob = (job: ClaimedJob) => {
    const handler = handlers.get(lanes.get(job.lane) ?? '')
    if (!handler || isEnding) return giveBack(job)
    unreported++
    const run = new Run(job, handler, runSettings)
    runs.set(job.id, run)
    if (job.payload !== '') run.start()
    else startLarge(run)
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
    if (jobs.every(job => lanes.has(job.lane))) {
      for (const job of jobs) startJob(job)
      return
    }
    const token = jobs[0]?.leaseToken ?? ''
    unstartedClaims.add(token)
    readLanes(pool, schema)
      .then(
        read => {
          lanes = read
          for (const job of jobs) startJob(job)
        },
        error => {
          logger.warn({ err: error }, 'could not read the lanes of claimed jobs; giving the jobs back')
          for (const job of jobs) giveBack(job)
        },
      )
      .finally(() => unstartedClaims.delete(token))
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

  let leaseChecks: NodeJS.Timeout[] = []
  let checksLeft = 0
  const checkLeasesSoon = () => {
    for (const timer of leaseChecks) clearTimeout(timer)
    checksLeft = LEASE_CHECKS_MS.length
    if (isEnding) return
    leaseChecks = LEASE_CHECKS_MS.map(ms =>
      setTimeout(() => {
        checkLeases().then(
          () => checksLeft--,
          error => {
            logger.info({ err: error }, 'could not compare leases with Postgres; trying again')
            checkLeasesSoon()
          },
        )
      }, ms),
    )
  }

  const wakeUp = createWakeUp({
    pollIntervalMs: given.settings.pollIntervalMs,
    setListening: isListening => setListening(pool, schema, workerId, isListening),
    look: () => loop.look(),
    onError: error => logger.info({ err: error }, 'could not say whether this worker listens'),
  })
  const loop = createExchangeLoop({
    settings: given.settings,
    exchange: (outcomes, limit) => settleAndClaim(pool, schema, workerId, outcomes, limit),
    onClaimed: startJobs,
    onSettled: outcome => {
      if (holds(outcome)) runs.delete(outcome.id)
    },
    onUnclearClaim: checkLeasesSoon,
    onIdle: () => wakeUp.onIdle(),
    onFull: () => wakeUp.onFull(),
    logger,
  })

  let upkeep: Upkeep | undefined
  const bell = channelName(schema, `worker_${workerId}`)
  const listener = await openListener({
    postgres: given.postgres,
    channels: [bell, channelName(schema, 'due')],
    onNotify: channel => (channel === bell ? wakeUp.onRing() : upkeep?.onDue()),
    onGap: () => wakeUp.onRing(),
    onError: error => logger.warn({ err: error }, 'the listening connection broke; reconnecting'),
  })
  upkeep = startUpkeep({ db: listener, pool, schema, holder: `worker ${workerId}`, logger })
  const beats = setInterval(() => {
    beat(listener, schema, workerId).catch(error => logger.info({ err: error }, 'a beat was missed'))
  }, BEAT_MS)
  loop.look()

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
    if (checksLeft === 0) return
    await checkLeases().catch(error => logger.warn({ err: error }, 'could not compare leases with Postgres'))
    await loop.idle()
  }

  const end = async (deadlineMs: number) => {
    isEnding = true
    wakeUp.stop()
    for (const timer of leaseChecks) clearTimeout(timer)
    loop.stopClaiming()
    // A claim under way may still bring jobs: they are given back at once.
    await allReported(deadlineMs)
    for (const run of runs.values()) run.abort(new LongshoreError('WORKER_STOPPED', 'the worker is stopping'))
    await allReported(given.abortGraceMs + 100)
    const unsettled = await Promise.race([lastSettles(), pause(LAST_SETTLE_MS, 'unsettled', { ref: false })])
    if (unsettled)
      logger.error('stopping with runs that could not be settled: somebody holds them, or Postgres is away')
    loop.close()
    clearInterval(beats)
    await upkeep.stop()
    const unregistered = unregisterWorker(pool, schema, workerId).catch(error =>
      logger.warn({ err: error }, 'could not deregister; the row is left behind'),
    )
    await Promise.race([unregistered, pause(UNREGISTER_MS, undefined, { ref: false })])
    await listener.close()
  }

  let ended: Promise<void> | undefined
  return {
    workerId,
    async setProperties(had) {
      if (isEnding) return
      await setProperties(pool, schema, workerId, had)
      await loop.answered() // calls under way may go by what it had before
      if (!isEnding) loop.look()
    },
    end(deadlineMs) {
      ended ??= end(deadlineMs)
      return ended
    },
  }
}
