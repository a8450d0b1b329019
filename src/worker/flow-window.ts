/**
 * Owns whether jobs flow: in a window of a tenth of a second at least 50 runs have ended. Then most settles travel with a
 * claim, and there are half as many commits.
 */
export class FlowWindow {
  isFlow = false
  #since: number
  #ended = 0

  constructor(now: number) {
    this.#since = now
  }

  /** A run has ended. A window ends with the first run after its time; one that took twice as long was no flow. */
  add(now: number): void {
    this.#ended++
    const ms = now - this.#since
    if (ms <= WINDOW_MS) return
    this.isFlow = this.#ended >= FLOW_RUNS && ms < 2 * WINDOW_MS
    this.#since = now
    this.#ended = 0
  }
}

const WINDOW_MS = 100
const FLOW_RUNS = 50
