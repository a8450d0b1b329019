/**
 * Upkeep: the duties that one process, the leader, does for the whole deployment. Duties are one file each: due jobs,
 * rescue, groups and those that are stuck, limits that change, are renewed or forgotten, history, an outbox without a relay. Two leaders would do
 * no harm to them; the lease only saves work.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { Queryable } from '../job/queryable.ts'
import type { Pool } from '../postgres/connect.ts'
import type { Holder } from '../postgres/secret.ts'
import { isTransientError } from '../postgres/transient-error.ts'
import type { Logger } from '../runtime/logger.ts'
import { changeLimits } from './change-limits.ts'
import { createDuties } from './duties.ts'
import { createExpiredForgetting } from './forget-expired.ts'
import { forgetLanes } from './forget-lanes.ts'
import { createLimitForgetting } from './forget-limits.ts'
import { createHistory } from './keep-history.ts'
import { isNotLeader, type LeaderRank, lead, resign } from './lead.ts'
import { createDueJobs } from './promote-due-jobs.ts'
import { createLimitRenewal } from './renew-limits.ts'
import { rescueJobs } from './rescue-jobs.ts'
import { createGroupSweep } from './sweep-groups.ts'
import { switchToDirect } from './switch-to-direct.ts'
import { createWatchdog } from './watch-groups.ts'

export interface Upkeep {
  /** A job was scheduled that is due before the next regular look. */
  onDue(): void
  /** Another process is known to lead: ask for nothing until told otherwise. */
  rest(isToRest: boolean): void
  stop(): Promise<void>
}

const LEASE_MS = 3000
const RENEW_MS = 1000
/** How long a stop waits for Postgres to take the lease back. */
const RESIGN_MS = 2000

export function startUpkeep(options: {
  /** Carries the small periodic calls; its own connection, so that they never wait behind jobs. */
  db: Queryable
  /** For the duties that need a transaction. */
  pool: Pool
  schema: string
  /** Unique per process start. */
  holder: Holder
  rank: LeaderRank
  /** Told with each renewal: the epoch, or null while others lead or Postgres is away. */
  onTerm?: (epoch: string | null) => void
  /** Told with each look of the watchdog: how many groups are stuck, 0 while others lead. */
  onStuck?: (groups: number) => void
  logger: Logger
}): Upkeep {
  const { db, pool, schema, holder, logger } = options
  const duties = createDuties(db, schema, holder, logger)
  const dueJobs = createDueJobs({ db, schema, holder, attempt: duties.attempt, onError: report })
  const sweepGroups = createGroupSweep(db, schema, holder)
  const renewLimits = createLimitRenewal(db, schema, holder)
  const forgetLimits = createLimitForgetting(db, schema, holder)
  const forgetExpired = createExpiredForgetting(db, schema, holder)
  const watchdog = createWatchdog({
    db: pool,
    schema,
    holder,
    ...(options.onStuck ? { onLook: options.onStuck } : {}),
    attempt: duties.attempt,
    onError: report,
    logger,
  })
  const history = createHistory({ db: pool, schema, holder, duties, onError: report })
  let isLeader = false
  let leadingSince = 0
  let isStopped = false
  let isResting = false
  let renewing: Promise<void> = Promise.resolve()

  function report(error: unknown): void {
    if (isStopped) return
    if (isNotLeader(error)) endTerm()
    else if (isTransientError(error))
      logger.info({ err: error }, 'upkeep could not reach Postgres; trying again')
    else logger.error({ err: error }, 'upkeep failed; trying again')
  }

  function endTerm(): void {
    if (isLeader) logger.info('upkeep: others lead, or Postgres is away')
    isLeader = false
    endDuties()
    options.onTerm?.(null)
  }

  const endDuties = () => {
    dueJobs.stop()
    return Promise.all([watchdog.stop(), history.stop()])
  }

  const renew = async () => {
    const epoch = await lead(db, schema, holder, LEASE_MS, options.rank)
    if (isStopped || isResting) return
    if (isLeader !== (epoch !== null))
      logger.info({ epoch }, epoch === null ? 'upkeep: others lead' : 'upkeep: leads')
    if (!isLeader) leadingSince = performance.now()
    const isNewTerm = !isLeader && epoch !== null
    isLeader = epoch !== null
    options.onTerm?.(epoch)
    if (!isLeader) {
      endDuties()
      return
    }
    if (isNewTerm) await duties.begin()
    dueJobs.start()
    watchdog.start()
    history.start()
    const leadingMs = () => performance.now() - leadingSince
    await duties.attempt('rescue', () => rescueJobs(db, schema, holder, leadingMs(), logger))
    await duties.attempt('groups', sweepGroups)
    await duties.attempt('limits', () => changeLimits(db, schema, holder, logger))
    await duties.attempt('renewal of limits', renewLimits)
    await duties.attempt('unused limits', forgetLimits)
    await duties.attempt('unused lanes', () => forgetLanes(db, schema, holder, logger))
    await duties.attempt('expired waits', forgetExpired)
    if (options.rank !== 'relay with Redis')
      await duties.attempt('dispatch', () => switchToDirect(db, schema, holder, leadingMs(), logger))
  }

  const turn = () => {
    if (isResting) return
    renewing = renew().catch(error => {
      endTerm()
      report(error)
    })
  }
  turn()
  const timer = setInterval(() => renewing.then(() => isStopped || turn()), RENEW_MS)

  const giveUp = async () => {
    const ended = endDuties()
    await renewing
    await ended
    if (!isLeader) return
    isLeader = false
    await resign(db, schema, holder).catch(error =>
      logger.info({ err: error }, 'could not give the lease back'),
    )
  }

  return {
    onDue() {
      if (isLeader) dueJobs.lookNow()
    },
    rest(isToRest) {
      if (isResting === isToRest) return
      isResting = isToRest
      if (isResting) giveUp()
      else if (!isStopped) renewing = renewing.then(turn)
    },
    async stop() {
      isStopped = true
      clearInterval(timer)
      // Without an answer the lease runs out by itself.
      await Promise.race([giveUp(), pause(RESIGN_MS, undefined, { ref: false })])
    },
  }
}
