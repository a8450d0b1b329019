/** Owns how late the event loop runs what is due: a handler that computes for long makes everybody else wait. */
import { monitorEventLoopDelay } from 'node:perf_hooks'

export interface LagGauge {
  /** The longest delay since the last call, in milliseconds. */
  read(): number
  stop(): void
}

const LOOK_MS = 20

export function createLagGauge(): LagGauge {
  const delays = monitorEventLoopDelay({ resolution: LOOK_MS })
  delays.enable()
  return {
    read() {
      const longest = delays.count === 0 ? 0 : delays.max / 1e6 - LOOK_MS
      delays.reset()
      return Math.max(0, longest)
    },
    stop() {
      delays.disable()
    },
  }
}
