/**
 * Settles outcomes whose rows another transaction has locked: apart from the others and with growing pauses, since a user's transaction may
 * keep such a lock for minutes and must not delay other jobs.
 */
import type { Outcome } from '../postgres/settle-and-claim.ts'

export interface BusyOutcomes {
  /** None waits, and none is being settled. */
  readonly isEmpty: boolean
  add(outcome: Outcome): void
  /** They are given up. */
  close(): void
}

const FIRST_MS = 5
const MAX_MS = 1000

export function createBusyOutcomes(options: {
  /** Settles them; those that are still locked are added again. Must not reject. */
  settle: (outcomes: Outcome[]) => Promise<void>
  /** How many may travel in one call. */
  most: () => number
  /** A round is over. */
  onRound: () => void
}): BusyOutcomes {
  const waiting: Outcome[] = []
  let timer: NodeJS.Timeout | undefined
  let rounds = 0 // in a row that have settled nothing
  let isClosed = false

  const settleSoon = () => {
    if (waiting.length === 0 || timer || isClosed) return
    timer = setTimeout(settle, Math.min(MAX_MS, FIRST_MS * 2 ** Math.min(rounds, 10)))
  }

  const settle = async () => {
    const before = waiting.length
    await options.settle(waiting.splice(0, options.most()))
    timer = undefined
    rounds = waiting.length < before ? 0 : rounds + 1
    settleSoon()
    options.onRound()
  }

  return {
    get isEmpty() {
      return waiting.length === 0 && timer === undefined
    },
    add(outcome) {
      waiting.push(outcome)
      settleSoon()
    },
    close() {
      isClosed = true
      clearTimeout(timer)
    },
  }
}
