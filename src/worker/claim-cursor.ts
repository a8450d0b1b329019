/**
 * Owns where a direct claim begins to read a lane: at the worst score of the last one that came back full, not at the start. What
 * was claimed before that stands in the index until nobody can see it any more, and while a transaction is held open for minutes
 * every claim would walk past millions of such entries. A job that becomes ready before the cursor (a higher priority, a late
 * commit, one that was given back) is found by the next claim from the start; nothing is taken for empty without one.
 */
export interface ClaimCursor {
  /** The score to begin at; null: at the start. */
  begin(): number | null
  /** What a claim brought that began at `from` and took `ms`. */
  note(claim: { from: number | null; isFilled: boolean; worst: number | undefined; ms: number }): void
}

/** Jobs that become ready before the cursor wait no longer than this, unless claims from the start are slow. */
const START_EVERY_MS = 20
/** Slow: so many times as long as claims from the cursor. Then they are a tenth of the time, and no rarer than this. */
const SLOW = 2
const SHARE = 10
const START_AT_LEAST_EVERY_MS = 250

export function createClaimCursor(now: () => number = () => performance.now()): ClaimCursor {
  let cursor: number | null = null
  let startAgainAt = 0
  let lastMs = Number.POSITIVE_INFINITY // of a claim from the cursor
  return {
    begin: () => (now() < startAgainAt ? cursor : null),
    note({ from, isFilled, worst, ms }) {
      if (!isFilled || worst === undefined) {
        cursor = null
        return
      }
      cursor = worst
      if (from !== null) lastMs = ms
      else startAgainAt = now() + (ms > SLOW * lastMs ? pauseAfter(ms) : START_EVERY_MS)
    },
  }
}

const pauseAfter = (ms: number): number =>
  Math.min(START_AT_LEAST_EVERY_MS, Math.max(START_EVERY_MS, SHARE * ms))
