/**
 * Owns where a direct claim begins to read its lanes: at the worst score of an earlier claim, or at the start. What was claimed
 * before that stands in the index until no transaction can see it any more, and while one is held open for minutes every claim from
 * the start walks past all of it. A job that becomes ready before the cursor (a higher priority, a late commit, one that was given
 * back) is found by the next claim from the start, or rings.
 *
 * Under a backlog claims come back full, and every 20 ms one begins at the start. Without a backlog every claim does, because only such a
 * claim tells that there is no more; unless claims from the start are *slow*. Then the cursor stays where it is, and jobs before it
 * wait for the next claim from the start: 0.8 s at most.
 */
export interface ClaimCursor {
  /** The score to begin at; null: at the start. */
  begin(): number | null
  /** What a claim brought that began at `from` and took `ms`. Answers whether there may be more, and it is to be looked for at once. */
  note(claim: ClaimNote): boolean
  /** A job has become ready at this score; null: at one that is not known. */
  onReady(score: number | null): void
  /** A claim is to be sent within this time, so that one begins at the start soon enough; `Infinity`: the last one did. */
  withinMs(): number
}

export interface ClaimNote {
  readonly from: number | null
  readonly isFilled: boolean
  /** Jobs were left behind that may run at any moment: a limit keeps them, or another transaction locks them. */
  readonly isLimited: boolean
  /** The worst score of what was claimed. */
  readonly worst: number | undefined
  readonly ms: number
}

const START_EVERY_MS = 20
/** Slow: at least so long, and so many times as long as claims from the cursor, the shortest of the last few of each. */
const SLOW_MS = 2
const SLOW = 2
const FEW = 4
/** Where claims from the start take long, some begin at the cursor so often, to compare. */
const TRY_EVERY_MS = 1000
/** Where they are slow, the time between two of them is so many times what one takes, and no longer than this. */
const SHARE = 12
const START_AT_LEAST_EVERY_MS = 800

export function createClaimCursor(now: () => number = () => performance.now()): ClaimCursor {
  /** Where the next claim may begin. */
  let cursor: number | null = null
  /** The worst score that was ever claimed. */
  let reached: number | null = null
  let startAgainAt = 0
  /** When it last heard of a job before the cursor. */
  let heardAt = Number.NEGATIVE_INFINITY
  let triedAt = Number.NEGATIVE_INFINITY
  const fromStart = shortest()
  const fromCursor = shortest()
  const isSlow = () => fromStart.ms >= SLOW_MS && fromStart.ms > SLOW * fromCursor.ms && fromCursor.ms > 0
  const isToBeTried = () => fromStart.ms >= SLOW_MS && now() - triedAt >= TRY_EVERY_MS
  const pauseMs = () =>
    isSlow()
      ? Math.min(START_AT_LEAST_EVERY_MS, Math.max(START_EVERY_MS, SHARE * fromStart.ms))
      : START_EVERY_MS

  return {
    begin() {
      if (now() < startAgainAt) return cursor
      // A claim that is sent meanwhile need not begin at the start too.
      if (isSlow()) startAgainAt = now() + pauseMs()
      return null
    },
    note({ from, isFilled, isLimited, worst, ms }) {
      if (worst !== undefined) reached = Math.max(worst, reached ?? worst)
      if (from === null) fromStart.add(ms)
      else {
        fromCursor.add(ms)
        triedAt = now()
      }
      const stays = isFilled || (!isLimited && (isSlow() || isToBeTried()))
      cursor = !stays ? null : isFilled ? (worst ?? null) : reached
      // A claim that was under way then may not have seen that job.
      if (from === null && stays && heardAt < now() - ms) startAgainAt = now() + pauseMs()
      return from !== null && !isFilled && (cursor === null || now() >= startAgainAt)
    },
    onReady(score) {
      if (score !== null && score >= (cursor ?? 0)) return
      heardAt = now()
      startAgainAt = 0
    },
    withinMs: () => (cursor === null ? Number.POSITIVE_INFINITY : Math.max(0, startAgainAt - now())),
  }
}

/** The shortest of the last few times; 0: none is known. */
function shortest() {
  const times: number[] = []
  return {
    get ms() {
      return times.length === 0 ? 0 : Math.min(...times)
    },
    add(ms: number) {
      times.push(ms)
      if (times.length > FEW) times.shift()
    },
  }
}
