/**
 * Owns where a direct claim begins to read its lanes: at the worst score of an earlier claim, or at the start. What was claimed
 * before that stands in the index until no transaction can see it any more, and while one is held open for minutes every claim from
 * the start walks past all of it.
 *
 * Mostly claims from the start are quick: under a backlog, where claims come back full, one begins there every 20 ms, and without a
 * backlog every claim does, because only such a claim tells that there is no more. Where they are *slow*, claims begin at the cursor.
 * A job that becomes ready before it (a higher priority, a late commit, one that was given back) rings with its score, or is found by a *look*:
 * a statement that only reads, beside the claims, every 0.8 s at least. The next claim begins at that job.
 */
export interface ClaimCursor {
  /** The score to begin at; null: at the start. */
  begin(): number | null
  /** What a claim brought that began at `from` and took `ms`. Answers whether there may be more, and it is to be looked for at once. */
  note(claim: ClaimNote): boolean
  /** A job has become ready at this score; null: at one that is not known. */
  onReady(score: number | null): void
  /** A claim is to be sent within this time; `Infinity`: none is needed. */
  withinMs(): number
  /** A look is to begin after this time; `Infinity`: none is needed. */
  lookWithinMs(): number
  /** A look begins: it is for jobs below this score. */
  beginLook(): number
  /** What it found, the best score; null: nothing. Answers whether a claim is to be sent. */
  noteLook(look: { readonly best: number | null; readonly ms: number }): boolean
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
/** The time between two looks is so many times what one takes, and no longer than this. */
const SHARE = 12
const LOOK_AT_LEAST_EVERY_MS = 800

export function createClaimCursor(now: () => number = () => performance.now()): ClaimCursor {
  /** Where the next claim may begin. */
  let cursor: number | null = null
  /** The worst score that was ever claimed. */
  let reached: number | null = null
  /** The best score that rang or was found by a look, and where no claim has begun since. */
  let heard = Number.POSITIVE_INFINITY
  let startAgainAt = 0
  /** When it last heard of a job before the cursor. */
  let heardAt = Number.NEGATIVE_INFINITY
  let triedAt = Number.NEGATIVE_INFINITY
  let lookAt = 0
  const fromStart = shortest()
  const fromCursor = shortest()
  const isSlow = () => fromStart.ms >= SLOW_MS && fromStart.ms > SLOW * fromCursor.ms && fromCursor.ms > 0
  const isToBeTried = () => fromStart.ms >= SLOW_MS && now() - triedAt >= TRY_EVERY_MS
  const keepsPlace = () => cursor !== null && isSlow()
  const beginsAtStart = () => cursor === null || (!isSlow() && now() >= startAgainAt)

  return {
    begin() {
      if (cursor === null || beginsAtStart()) return null
      const from = Math.min(heard, cursor)
      heard = Number.POSITIVE_INFINITY
      return from
    },
    note({ from, isFilled, isLimited, worst, ms }) {
      if (worst !== undefined) reached = Math.max(worst, reached ?? worst)
      if (from === null) {
        fromStart.add(ms)
        // A claim that was under way then may not have seen that job.
        if (heardAt < now() - ms) {
          startAgainAt = now() + START_EVERY_MS
          lookAt = now() + pauseMs(ms)
        }
      } else {
        fromCursor.add(ms)
        triedAt = now()
      }
      const stays = isFilled || (!isLimited && (isSlow() || isToBeTried()))
      cursor = !stays ? null : isFilled ? (worst ?? null) : reached
      return from !== null && !isFilled && beginsAtStart()
    },
    onReady(score) {
      if (keepsPlace()) {
        if (score === null) lookAt = now()
        else heard = Math.min(heard, score)
      } else if (score === null || score < (cursor ?? Number.POSITIVE_INFINITY)) {
        heardAt = now()
        startAgainAt = 0
      }
    },
    withinMs: () =>
      cursor === null || isSlow() ? Number.POSITIVE_INFINITY : Math.max(0, startAgainAt - now()),
    lookWithinMs: () => (keepsPlace() ? Math.max(0, lookAt - now()) : Number.POSITIVE_INFINITY),
    beginLook() {
      lookAt = Number.POSITIVE_INFINITY
      return cursor ?? 0
    },
    noteLook({ best, ms }) {
      fromStart.add(ms)
      if (best !== null) heard = Math.min(heard, best)
      // Sooner if meanwhile a job has rung at a score that is not known.
      lookAt = Math.min(lookAt, now() + pauseMs(ms))
      return best !== null || !isSlow()
    },
  }
}

/** How long after a look, or a claim from the start, that took `ms`, the next look comes. */
const pauseMs = (ms: number) => Math.min(LOOK_AT_LEAST_EVERY_MS, Math.max(START_EVERY_MS, SHARE * ms))

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
