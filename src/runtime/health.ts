/** Owns how a process tells whether it can do its work: what it asks its stores, for how long, and in which words. */
import { messageOf } from '../job/stored-error.ts'

export interface Health {
  /** It does its work, or would if there were any. */
  readonly isReady: boolean
  /** What it is about. */
  readonly state: string
  /** `up`, `away: …` with the reason, or `not asked` before it has started. */
  readonly postgres: string
  /** The same, or `not used`. A process is ready without it. */
  readonly redis: string
  /** `free`, or `held: …`: a session in Postgres stops others with a lock. */
  readonly locks: string
  /** `well`, or `failing: …` with the duties of the deployment's upkeep that fail, since when and why. A process is ready meanwhile. */
  readonly upkeep: string
}

/** Asks a store; why it cannot be used, or nothing. */
export type Probe = () => Promise<string | undefined>

const LIMIT_MS = 2000
const LONGEST_REASON = 300

/**
 * However many callers ask, one question is under way: they must not pile up at a store that does not answer. A caller
 * waits for at most two seconds.
 */
export function createProbe(ask: () => Promise<unknown>): Probe {
  let underWay: Promise<string | undefined> | undefined
  return async () => {
    underWay ??= ask()
      .then(() => undefined, reasonOf)
      .finally(() => {
        underWay = undefined
      })
    let limit: NodeJS.Timeout | undefined
    const late = new Promise<string>(resolve => {
      limit = setTimeout(() => resolve(`no answer in ${LIMIT_MS} ms`), LIMIT_MS)
    })
    try {
      return await Promise.race([underWay, late])
    } finally {
      clearTimeout(limit)
    }
  }
}

/** Without credentials: a driver may well quote the URL that it was given. */
function reasonOf(error: unknown): string {
  const { code } = (error ?? {}) as { code?: unknown }
  const said = messageOf(error) || String(code ?? 'no reason was given')
  return said.slice(0, LONGEST_REASON)
}

/** As a probe wants it: none, or the reason. */
export function refuseHeld(held: readonly string[]): void {
  if (held.length > 0) throw new Error(held.join('; '))
}

export const shownLocks = (held: string | undefined): string =>
  held === undefined ? 'free' : `held: ${held}`

export const shownUpkeep = (failing: string | undefined, isPostgresUp: boolean): string =>
  isPostgresUp ? (failing === undefined ? 'well' : `failing: ${failing}`) : 'not known'

export const shownStore = (why: string | undefined, meanwhile?: string): string =>
  why === undefined ? 'up' : `away${meanwhile ? ` (${meanwhile})` : ''}: ${why}`
