/**
 * Owns how an outage is told: once when it begins, once a minute while it lasts, and once when it is over. Everything that a process
 * does meanwhile fails and is tried again; each failure is still told at level `debug`.
 */
import type { Logger } from './logger.ts'

export interface Outage {
  /** Once more. `reason`: those of one outage that are to be told on their own. */
  failed(error?: unknown, reason?: string): void
  /** Something worked. It is over when nothing fails for some seconds after that. */
  works(): void
}

/** An outage, and which errors are of it. */
export interface Told {
  outage: Outage
  isOf(error: unknown): boolean
}

const AGAIN_MS = 60_000
/** Parts of a process notice at different times, and connections come back one by one. */
const QUIET_MS = 3000

/** `begun` and `over`: sentences without an end. */
export function createOutage(logger: Logger, begun: string, over: string): Outage {
  let since: number | undefined
  let failedAt = 0
  let quiet: NodeJS.Timeout | undefined
  const toldAt = new Map<string, number>()

  const end = () => {
    quiet = undefined
    if (since === undefined) return
    if (performance.now() - failedAt < QUIET_MS) return lookLater()
    const seconds = Math.max(1, Math.round((failedAt - since) / 1000))
    since = undefined
    toldAt.clear()
    logger.warn({ seconds }, over)
  }

  const lookLater = () => {
    quiet = setTimeout(end, QUIET_MS + 10).unref()
  }

  return {
    failed(error, reason = '') {
      failedAt = performance.now()
      since ??= failedAt
      const told = error === undefined ? {} : { err: error }
      const last = toldAt.get(reason)
      if (last !== undefined && failedAt - last < AGAIN_MS) {
        if (error !== undefined) logger.debug(told, begun)
        return
      }
      toldAt.set(reason, failedAt)
      if (last === undefined) logger.warn(told, begun)
      else logger.warn({ ...told, seconds: Math.round((failedAt - since) / 1000) }, `still: ${begun}`)
    },
    works() {
      if (since !== undefined && !quiet) lookLater()
    },
  }
}

const LEVELS = ['info', 'warn'] as const

/**
 * A logger for the parts of a process that use a store: the outage itself reports errors of an outage, and their own lines
 * about it go to `debug`. So each may say what it could not do, and none floods the log. Not for errors of handlers, whose
 * own stores may be away.
 */
export function withOutages(logger: Logger, outages: readonly Told[]): Logger {
  const wrapped: Logger = Object.create(logger)
  for (const level of LEVELS) {
    wrapped[level] = (...args: unknown[]) => {
      const err = (args[0] as { err?: unknown } | null | undefined)?.err
      const told = err === undefined ? undefined : outages.find(({ isOf }) => isOf(err))
      told?.outage.failed(err)
      ;(logger[told ? 'debug' : level] as (...args: unknown[]) => void)(...args)
    }
  }
  const child = (...args: Parameters<Logger['child']>) =>
    withOutages(logger.child(...args) as unknown as Logger, outages)
  wrapped.child = child as unknown as Logger['child']
  return wrapped
}
