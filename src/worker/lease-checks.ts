/**
 * Owns what follows a claim whose answer was lost: it may have been committed, and its transaction may still be under way when
 * the worker first looks. So it compares leases with Postgres several times, and gives back those that it does not know.
 */
import type { Lease } from '../postgres/settle-and-claim.ts'
import type { Logger } from '../runtime/logger.ts'
import type { ExchangeLoop } from './exchange-loop.ts'
import type { Runs } from './runs.ts'

export interface LeaseChecks {
  /** A claim may have been committed without our knowing. */
  begin(): void
  /** The last one, ahead of its time; nothing if none is due. */
  finish(): Promise<void>
  stop(): void
}

const AFTER_MS = [1000, 5000, 30_000]

export function createLeaseChecks(options: {
  /** Every run that the worker holds for Postgres. */
  read: () => Promise<readonly Lease[]>
  runs: Pick<Runs, 'holds' | 'snapshot'>
  loop: () => Pick<ExchangeLoop, 'answered' | 'settle'>
  logger: Logger
}): LeaseChecks {
  const { runs, logger } = options
  let timers: NodeJS.Timeout[] = []
  let left = 0
  let isStopped = false

  const check = async () => {
    const wasHeld = runs.snapshot()
    const leases = await options.read()
    const loop = options.loop()
    // Claims that are committed but not yet answered are among them: they are no strangers.
    await loop.answered()
    // Nor is what was settled while Postgres read.
    const unknown = leases.filter(lease => !wasHeld(lease) && !runs.holds(lease))
    for (const lease of unknown) loop.settle({ ...lease, kind: 'released' })
    if (unknown.length > 0)
      logger.warn({ jobs: unknown.length }, 'gave back jobs whose claim was never answered')
  }

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
