/** Owns how long a failed job waits before its next attempt. Pure, but for the jitter's random number. */
import { checkOptions } from './check-options.ts'
import { type Duration, toMs } from './duration.ts'
import { LongshoreError } from './errors.ts'
import { shown } from './shown.ts'

export type BackoffOptions =
  | 'fixed'
  | 'exponential'
  | {
      type: 'fixed' | 'exponential'
      /** Wait before the second attempt. Default `'1s'`. */
      delay?: Duration
      /** Longest wait. Default `'1h'`. */
      max?: Duration
      /** Share of the wait that is drawn at random, 0 to 1. Default 0.5 for exponential, 0 for fixed. */
      jitter?: number
    }
  /** Wait after this attempt (1 is the first) that failed with this error. */
  | ((attempt: number, error: unknown) => Duration)

/** Milliseconds to wait after `attempt` failed. */
export type Backoff = (attempt: number, error: unknown) => number

export function toBackoff(options: BackoffOptions, random: () => number = Math.random): Backoff {
  if (typeof options === 'function') {
    return (attempt, error) => toMs(options(attempt, error), 'the result of a custom backoff')
  }
  const given = typeof options === 'string' ? { type: options } : options
  checkOptions('TASK_INVALID', 'backoff', given, ['type', 'delay', 'max', 'jitter'])
  const { type, delay = '1s', max = '1h', jitter } = given
  if (type !== 'fixed' && type !== 'exponential') {
    throw new LongshoreError(
      'TASK_INVALID',
      `backoff must be 'fixed', 'exponential' or a function; got ${shown(type)}`,
    )
  }
  const baseMs = toMs(delay, 'backoff.delay')
  const maxMs = toMs(max, 'backoff.max')
  const share = jitter ?? (type === 'exponential' ? 0.5 : 0)
  if (typeof share !== 'number' || !(share >= 0 && share <= 1)) {
    throw new LongshoreError('TASK_INVALID', `backoff.jitter must be between 0 and 1; got ${shown(share)}`)
  }
  return attempt => {
    const whole = Math.min(maxMs, type === 'fixed' ? baseMs : baseMs * 2 ** (attempt - 1))
    return Math.floor(whole * (1 - share * random()))
  }
}
