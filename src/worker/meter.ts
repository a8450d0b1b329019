/** Owns the figures of one worker process, over all its lives: plain numbers that cost next to nothing. */
import { createHistogram } from 'node:perf_hooks'

export type Ending = 'succeeded' | 'failed' | 'retried' | 'released'

/** Counts by upper bounds; the last count is of what is above them all. */
export class Buckets {
  readonly counts: number[]
  sum = 0
  constructor(readonly bounds: readonly number[]) {
    this.counts = new Array(bounds.length + 1).fill(0)
  }
  add(value: number): void {
    let at = 0
    while (at < this.bounds.length && value > (this.bounds[at] as number)) at++
    this.counts[at] = (this.counts[at] as number) + 1
    this.sum += value
  }
}

const SECONDS = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800]
const SIZES = [0, 1, 5, 10, 25, 50, 100, 250, 500]

export class TaskFigures implements Record<Ending, number> {
  succeeded = 0
  failed = 0
  retried = 0
  released = 0
  readonly seconds = new Buckets(SECONDS)
}

/** What has ended in the last one or two of these counts for the p99. */
const WINDOW_MS = 10_000
const NS_PER_MS = 1e6

export class Meter {
  /** Calls that asked for jobs. */
  claims = 0
  readonly claimSizes = new Buckets(SIZES)
  readonly tasks = new Map<string, TaskFigures>()
  /** Runs that have ended, in one way or another but given back. */
  completed = 0
  failed = 0
  // Those of this window, those of the one before, and both.
  #recent = createHistogram()
  #before = createHistogram()
  readonly #both = createHistogram()
  #windowEnds = Number.NEGATIVE_INFINITY

  claimed(jobs: number): void {
    this.claims++
    this.claimSizes.add(jobs)
  }

  /** Times by `performance.now()`. */
  ended(task: string, how: Ending, startedAt: number, endedAt: number): void {
    let figures = this.tasks.get(task)
    if (!figures) {
      figures = new TaskFigures()
      this.tasks.set(task, figures)
    }
    figures[how]++
    if (how === 'released') return
    this.completed++
    if (how === 'failed') this.failed++
    const ms = endedAt - startedAt
    figures.seconds.add(ms / 1000)
    if (endedAt >= this.#windowEnds) this.#turnWindow(endedAt)
    this.#recent.record(Math.max(1, Math.round(ms * NS_PER_MS)))
  }

  /** Of how long handlers took of late; 0 when none has ended. */
  p99Ms(now = performance.now()): number {
    if (now >= this.#windowEnds) this.#turnWindow(now)
    if (this.#recent.count + this.#before.count === 0) return 0
    this.#both.reset()
    this.#both.add(this.#recent)
    this.#both.add(this.#before)
    return this.#both.percentile(99) / NS_PER_MS
  }

  #turnWindow(now: number): void {
    if (now >= this.#windowEnds + WINDOW_MS) this.#recent.reset() // of long ago
    this.#windowEnds = now + WINDOW_MS
    const oldest = this.#before
    oldest.reset()
    this.#before = this.#recent
    this.#recent = oldest
  }
}
