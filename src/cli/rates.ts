/**
 * Owns throughput as `longshore top` tells it: the growth of Postgres's own counters of rows written. They cost nothing to read, know of
 * every job, whichever worker ran it, and outlive workers; the counters in the beats come every five seconds and die with their worker.
 */
import type { Overview } from '../postgres/read-overview.ts'

export interface Rates {
  /** Jobs that have ended, however they did. */
  endedPerSecond: number
  enqueuedPerSecond: number
}

type Look = Pick<Overview, 'at' | 'totals'>

/** Backends tell their counts about once a second, so a shorter time would jump. */
const WINDOW_MS = 5000

/** Takes each look in turn; null until there are two to compare. */
export function createRateMeter(): (look: Look) => Rates | null {
  let looks: Look[] = []
  return look => {
    const last = looks.at(-1)
    // The counters fall when they are reset, and when a day of history is dropped.
    if (last && (look.totals.ended < last.totals.ended || look.totals.enqueued < last.totals.enqueued))
      looks = []
    looks.push(look)
    while (looks.length > 2 && ageOf(looks[1]) >= WINDOW_MS) looks.shift()
    const [first] = looks
    const seconds = ageOf(first) / 1000
    if (!first || seconds <= 0) return null
    return {
      endedPerSecond: (look.totals.ended - first.totals.ended) / seconds,
      enqueuedPerSecond: (look.totals.enqueued - first.totals.enqueued) / seconds,
    }

    function ageOf(earlier: Look | undefined): number {
      return earlier ? look.at.getTime() - earlier.at.getTime() : 0
    }
  }
}
