/** Owns how late the event loop runs what is due: a handler that computes for long makes all others wait. */
import { monitorEventLoopDelay } from 'node:perf_hooks'

export interface LagGauge {
  /** The longest delay since the last call but one, in milliseconds. */
  read(): number
  /** The longest that `read` has told in the last 15 to 30 seconds, for callers that look only now and then. */
  peak(): number
  stop(): void
}

const LOOK_MS = 20
const WINDOW_MS = 15_000

export function createLagGauge(): LagGauge {
  // Two, of which each call begins one anew: that one does not see a delay that is not over yet, or begins at once.
  const delays = [1, 2].map(() => monitorEventLoopDelay({ resolution: LOOK_MS }))
  for (const each of delays) each.enable()
  let windowEnds = performance.now() + WINDOW_MS
  let [longestNow, longestBefore] = [0, 0]
  return {
    read() {
      const longest = Math.max(0, ...delays.map(({ count, max }) => (count === 0 ? 0 : max / 1e6 - LOOK_MS)))
      delays[0]?.reset()
      delays.reverse()
      if (performance.now() > windowEnds) {
        windowEnds = performance.now() + WINDOW_MS
        longestBefore = longestNow
        longestNow = 0
      }
      longestNow = Math.max(longestNow, longest)
      return longest
    },
    peak: () => Math.max(longestNow, longestBefore),
    stop() {
      for (const each of delays) each.disable()
    },
  }
}
