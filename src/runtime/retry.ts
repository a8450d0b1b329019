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

/** How long it is tried: so many times, or until so much time has passed. */
export type RetryBounds = { maxTries: number } | { forMs: number }

/** Run `attempt` until it succeeds, fails for good, or has been tried for long enough. */
export async function withRetry<T>(
  attempt: (tries: number) => Promise<T>,
  options: RetryPauses & RetryBounds & { isTransient: (error: unknown) => boolean },
): Promise<T> {
  const { maxTries, forMs } = { maxTries: Infinity, forMs: Infinity, ...options }
  const until = performance.now() + forMs
  for (let tries = 1; ; tries++) {
    try {
      return await attempt(tries)
    } catch (error) {
      const leftMs = until - performance.now()
      if (tries >= maxTries || leftMs <= 0 || !options.isTransient(error)) throw error
      await pause(Math.min(leftMs, pauseMs(tries, options)))
    }
  }
}
