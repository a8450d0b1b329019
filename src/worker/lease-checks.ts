/**
 * Owns what follows a claim whose answer was lost: it may have been committed, and its transaction may still be under way when
 * we first look. So leases are compared with Postgres several times.
 */
import type { Logger } from '../runtime/logger.ts'

export interface LeaseChecks {
  /** A claim may have been committed without our knowing. */
  begin(): void
  /** The last one, ahead of its time; nothing if none is due. */
  finish(): Promise<void>
  stop(): void
}

const AFTER_MS = [1000, 5000, 30_000]

export function createLeaseChecks(check: () => Promise<void>, logger: Logger): LeaseChecks {
  let timers: NodeJS.Timeout[] = []
  let left = 0
  let isStopped = false

  const stop = () => {
    for (const timer of timers) clearTimeout(timer)
  }

  const begin = () => {
    stop()
    left = AFTER_MS.length
    if (isStopped) return
    timers = AFTER_MS.map(ms =>
      setTimeout(() => {
        check().then(
          () => left--,
          error => {
            logger.info({ err: error }, 'could not compare leases with Postgres; trying again')
            begin()
          },
        )
      }, ms),
    )
  }

  return {
    begin,
    async finish() {
      if (left === 0) return
      await check().catch(error => logger.warn({ err: error }, 'could not compare leases with Postgres'))
    },
    stop() {
      isStopped = true
      stop()
    },
  }
}
