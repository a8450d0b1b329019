/** Owns how late the event loop runs what is due: a handler that computes for long makes everybody else wait. */
import { monitorEventLoopDelay } from 'node:perf_hooks'

export interface LagGauge {
  /** The longest delay since the last call, in milliseconds. */
  read(): number
  /** The longest that `read` has told in the last 15 to 30 seconds: whoever looks now and then misses none. */
  peak(): number
  stop(): void
}

const LOOK_MS = 20
const WINDOW_MS = 15_000

export function createLagGauge(): LagGauge {
  const delays = monitorEventLoopDelay({ resolution: LOOK_MS })
  delays.enable()
  let windowEnds = performance.now() + WINDOW_MS
  let [longestNow, longestBefore] = [0, 0]
  return {
    read() {
      const longest = delays.count === 0 ? 0 : Math.max(0, delays.max / 1e6 - LOOK_MS)
      delays.reset()
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
      delays.disable()
    },
  }
}
