/**
 * Upkeep: the duties that somebody must do for the whole deployment, done by whoever holds the lease. Duties are one
 * file each: due jobs, rescue, history. Holding the lease twice would do no harm to them; it only saves work.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { Queryable } from '../job/queryable.ts'
import type { Pool } from '../postgres/connect.ts'
import { isTransientError } from '../postgres/transient-error.ts'
import type { Logger } from '../runtime/logger.ts'
import { keepHistory } from './keep-history.ts'
import { lead, resign } from './lead.ts'
import { createDueJobs } from './promote-due-jobs.ts'
import { rescueJobs } from './rescue-jobs.ts'

export interface Upkeep {
  /** A job was scheduled that is due before the next regular look. */
  onDue(): void
  stop(): Promise<void>
}

const LEASE_MS = 3000
const RENEW_MS = 1000
/** How long a stop waits for Postgres to take the lease back. */
const RESIGN_MS = 2000
const HISTORY_MS = 10 * 60_000
const HISTORY_RETRY_MS = 5000

export function startUpkeep(options: {
  /** Carries the small periodic calls; its own connection, so that they never wait behind jobs. */
  db: Queryable
  /** For the duties that need a transaction. */
  pool: Pool
  schema: string
  /** Who leads, unique per process start. */
  holder: string
  logger: Logger
}): Upkeep {
  const { db, pool, schema, holder, logger } = options
  const dueJobs = createDueJobs({ db, schema, onError: report })
  let isLeader = false
  let leadingSince = 0
  let isStopped = false
  let renewing: Promise<void> = Promise.resolve()
  let historyAt = 0

  function report(error: unknown): void {
    if (isStopped) return
    if (isTransientError(error)) logger.info({ err: error }, 'upkeep could not reach Postgres; trying again')
    else logger.error({ err: error }, 'upkeep failed; trying again')
  }

  const renew = async () => {
    const epoch = await lead(db, schema, holder, LEASE_MS)
    if (isStopped) return
    if (isLeader !== (epoch !== null))
      logger.info({ epoch }, epoch === null ? 'upkeep: others lead' : 'upkeep: leads')
    if (!isLeader) leadingSince = performance.now()
    isLeader = epoch !== null
    if (!isLeader) return dueJobs.stop()
    dueJobs.start()
    await rescueJobs(db, schema, performance.now() - leadingSince, logger)
    if (performance.now() < historyAt) return
    // A failure here (most likely a lock that was not to be had) must not end the term.
    await keepHistory(pool, schema).then(
      () => {
        historyAt = performance.now() + HISTORY_MS
      },
      error => {
        historyAt = performance.now() + HISTORY_RETRY_MS
        report(error)
      },
    )
  }

  const turn = () => {
    renewing = renew().catch(error => {
      isLeader = false
      dueJobs.stop()
      report(error)
    })
  }
  turn()
  const timer = setInterval(() => renewing.then(() => isStopped || turn()), RENEW_MS)

  return {
    onDue() {
      if (isLeader) dueJobs.lookNow()
    },
    async stop() {
      isStopped = true
      clearInterval(timer)
      dueJobs.stop()
      const resigned = renewing
        .then(() => resign(db, schema, holder))
        .catch(error => logger.info({ err: error }, 'could not give the lease back'))
      // Without an answer the lease runs out by itself.
      await Promise.race([resigned, pause(RESIGN_MS, undefined, { ref: false })])
    },
  }
}
