/**
 * Owns the runs of one life of a worker: how a claimed job becomes one (its lane known, alone if it must be, in its thread, its payload there),
 * which leases the worker holds, and when the last of them has ended.
 */
import { LongshoreError } from '../job/errors.ts'
import type { JobId } from '../job/job-id.ts'
import type { Handler } from '../job/task.ts'
import type { Pool } from '../postgres/connect.ts'
import { readLanes } from '../postgres/register-worker.ts'
import type { WorkerKey } from '../postgres/secret.ts'
import { type ClaimedJob, type Lease, type Outcome, readPayload } from '../postgres/settle-and-claim.ts'
import type { Logger } from '../runtime/logger.ts'
import type { ExchangeLoop } from './exchange-loop.ts'
import { createAlone } from './run-alone.ts'
import { Run, type RunSettings } from './run-job.ts'
import type { ThreadPool } from './thread-pool.ts'

export interface Runs {
  /** Runs whose lease this worker holds in Postgres, also those whose outcome is not settled yet. */
  readonly size: number
  /** Handlers that have not returned, and jobs that wait to run alone or for a thread. */
  readonly inside: number
  start(jobs: ClaimedJob[]): void
  /** Starts no more: what is claimed from now on is given back. */
  end(): void
  /** Its lease is this worker's, as far as the worker knows. */
  holds(lease: Lease): boolean
  /** Those that it holds at this moment. */
  snapshot(): (lease: Lease) => boolean
  /** The lease is gone: settled, completed, or lost. */
  forget(lease: Lease): void
  /** Postgres has given this worker up: outcomes go nowhere. */
  lose(reason: LongshoreError): void
  /** False: there is no such run here. */
  abort(lease: Lease, reason: LongshoreError): boolean
  abortAll(reason: LongshoreError): void
  /** Resolves when claimed jobs whose lanes are being read have been started or given back. */
  lanesRead(): Promise<void>
  /** Resolves when every run has told its outcome, or the time is up. */
  allReported(ms: number): Promise<void>
  /** How many handlers are still inside; from now on `onReturn` is called as each of them returns. */
  handOver(onReturn: () => void): number
}

const MOST_KNOWN_LANES = 10_000

export function createRuns(options: {
  pool: Pool
  schema: string
  worker: WorkerKey
  handlers: ReadonlyMap<string, Handler>
  /** The tasks of the lanes that are known from the start. */
  lanes: Map<number, string>
  loop: () => ExchangeLoop
  threads: ThreadPool
  settings: Omit<RunSettings, 'onOutcome' | 'onReturn' | 'onCompleted' | 'runInThread'>
  onCompleted: (job: ClaimedJob) => void
  aloneDeadlineMs: number
  /** This job waits to run alone, or none. */
  onWaitingAlone: (job: JobId | null) => void
  /** The life that died before it: the handlers it left behind keep their permits. */
  earlier: Pick<Runs, 'handOver'> | undefined
  logger: Logger
}): Runs {
  const { pool, schema, handlers, lanes, threads, logger } = options
  const runs = new Map<JobId, Run>()
  // Claims whose lanes are being read: their jobs are not runs yet. One token per claim.
  const unstartedClaims = new Set<string>()
  const lanesBeingRead = new Set<Promise<unknown>>()
  let isEnding = false
  let isLost = false
  let unreported = 0
  let onAllReported: (() => void) | undefined
  let onReturn = () => options.loop().freePermit()

  const reported = () => {
    if (--unreported === 0) onAllReported?.()
    alone.onChange()
  }

  const returned = () => {
    inside--
    onReturn()
    alone.onChange()
  }
  let inside = options.earlier?.handOver(returned) ?? 0

  const settings: RunSettings = {
    ...options.settings,
    onOutcome: (outcome: Outcome) => {
      if (isLost) runs.delete(outcome.id)
      else options.loop().settle(outcome)
      reported()
    },
    onCompleted: job => {
      options.onCompleted(job)
      forget(job)
      reported()
    },
    runInThread: threads.run,
    onReturn: run => {
      if (run.handler.module) threads.leave(run)
      returned()
    },
  }

  const startJob = (job: ClaimedJob) => {
    const handler = handlers.get(lanes.get(job.lane) ?? '')
    if (!handler || isEnding) return giveBack(job)
    unreported++
    inside++
    const run = new Run(job, handler, settings)
    runs.set(job.id, run)
    if (job.mustRunAlone) alone.run(run)
    else start(run)
  }

  const start = (run: Run) => {
    const { module } = run.handler
    if (module) threads.enter(run, module, () => (isEnding ? run.giveUp() : startWithPayload(run)))
    else startWithPayload(run)
  }

  const startWithPayload = (run: Run) => {
    if (run.claimed.payload !== '') run.start()
    else startLarge(run)
  }

  const alone = createAlone({
    deadlineMs: options.aloneDeadlineMs,
    loop: options.loop,
    inside: () => inside,
    claimsStarted: () => Promise.all(lanesBeingRead),
    start: run => start(run),
    stuck: options.settings.stuck,
    onWaiting: options.onWaitingAlone,
    logger,
  })

  /** One after another: a worker that takes hundreds of large payloads at once would hold them all twice. */
  let lastLarge: Promise<void> = Promise.resolve()
  const startLarge = (run: Run) => {
    lastLarge = lastLarge.then(async () => {
      try {
        const payload = await readPayload(pool, schema, options.worker, run.claimed)
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
    const loop = options.loop()
    loop.settle({ id: job.id, leaseToken: job.leaseToken, kind: 'released' })
    loop.freePermit()
  }

  const readLanesAndStart = (jobs: ClaimedJob[], unknown: ClaimedJob[]) => {
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

  const isOf = (held: ReadonlyMap<JobId, Run>, lease: Lease) =>
    held.get(lease.id)?.claimed.leaseToken === lease.leaseToken

  const holds = (lease: Lease) => isOf(runs, lease) || unstartedClaims.has(lease.leaseToken)

  const forget = (lease: Lease) => {
    if (holds(lease)) runs.delete(lease.id)
  }

  const abortAll = (reason: LongshoreError) => {
    for (const run of runs.values()) run.abort(reason)
  }

  return {
    get size() {
      return runs.size
    },
    get inside() {
      return inside
    },
    start(jobs) {
      const unknown = jobs.filter(job => !lanes.has(job.lane))
      if (unknown.length > 0) readLanesAndStart(jobs, unknown)
      else for (const job of jobs) startJob(job)
    },
    end() {
      isEnding = true
      alone.end()
      for (const run of threads.waiting()) run.giveUp()
    },
    holds,
    snapshot() {
      const held = new Map(runs)
      return lease => isOf(held, lease)
    },
    forget,
    lose(reason) {
      isEnding = true
      isLost = true
      alone.end()
      abortAll(reason)
    },
    abort(lease, reason) {
      if (!isOf(runs, lease)) return false
      runs.get(lease.id)?.abort(reason)
      return true
    },
    abortAll,
    async lanesRead() {
      await Promise.all(lanesBeingRead)
    },
    allReported: ms =>
      new Promise<void>(resolve => {
        if (unreported === 0) return resolve()
        const timer = setTimeout(resolve, ms)
        onAllReported = () => {
          clearTimeout(timer)
          resolve()
        }
      }),
    handOver(onLeft) {
      onReturn = onLeft
      return inside
    },
  }
}
