/** Owns how a length of time is written: milliseconds, or a number with a unit such as `'30s'`. */

import { type ErrorCode, LongshoreError } from './errors.ts'
import { shown } from './shown.ts'

type Unit = 'ms' | 's' | 'm' | 'h' | 'd'
export type Duration = number | `${number}${'ms' | 's' | 'm' | 'h' | 'd'}`

const UNIT_MS: Record<Unit, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }
const WRITTEN = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/

/** Ten years: longer delays are mistakes in a unit. */
const LONGEST_MS = 315_360_000_000

/** Timers hold 31 bits; longer ones would fire at once. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1

/** A length of time as it would be written: in the largest unit that gives a whole number. */
export function shownDuration(ms: number): string {
  const unit = (['d', 'h', 'm', 's'] as const).find(unit => ms > 0 && ms % UNIT_MS[unit] === 0) ?? 'ms'
  return `${ms / UNIT_MS[unit]}${unit}`
}

/** Milliseconds of a duration that a timer of this process measures. */
export function toTimerMs(duration: Duration, what: string): number {
  const ms = toMs(duration, what)
  if (ms <= LONGEST_TIMER_MS) return ms
  throw new LongshoreError(
    'CONFIG_INVALID',
    `${what} must be at most ${LONGEST_TIMER_MS} ms (24 days); got ${shown(duration)}`,
  )
}

/** Milliseconds of a duration; `what` names it in the error. */
export function toMs(duration: Duration, what: string, code: ErrorCode = 'CONFIG_INVALID'): number {
  const match = typeof duration === 'string' ? WRITTEN.exec(duration) : undefined
  const ms = match ? Number(match[1]) * UNIT_MS[match[2] as Unit] : duration
  if (typeof ms !== 'number' || !(ms >= 0 && ms <= LONGEST_MS)) {
    throw new LongshoreError(
      code,
      `${what} must be milliseconds or a text like '500ms', '30s', '5m', '2h' or '1d', at most ten years; got ${shown(duration)}`,
    )
  }
  return Math.floor(ms)
}
