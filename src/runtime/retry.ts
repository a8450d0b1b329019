/** Owns trying again: bounded, with growing pauses and full jitter, so that many clients do not come back at once. */
import { setTimeout as pause } from 'node:timers/promises'

export interface RetryPauses {
  /** Longest first pause. */
  firstMs: number
  /** Longest pause. */
  maxMs: number
}

export function pauseMs(failures: number, pauses: RetryPauses): number {
  const whole = Math.min(pauses.maxMs, pauses.firstMs * 2 ** Math.min(failures - 1, 30))
  return Math.ceil(whole * (0.5 + Math.random() / 2))
}

/** Run `attempt` until it succeeds, fails for good, or has failed `maxTries` times. */
export async function withRetry<T>(
  attempt: (tries: number) => Promise<T>,
  options: RetryPauses & { maxTries: number; isTransient: (error: unknown) => boolean },
): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await attempt(tries)
    } catch (error) {
      if (tries >= options.maxTries || !options.isTransient(error)) throw error
      await pause(pauseMs(tries, options))
    }
  }
}
