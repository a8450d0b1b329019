/** Owns what a measurement yields: figures, and what the machine used meanwhile. */
import type { Cores } from './cpu.ts'
import type { Writes } from './writes.ts'

export interface Figure {
  readonly name: string
  readonly unit:
    | 'jobs/s'
    | 'ms'
    | 'µs'
    | 'jobs'
    | '%'
    | '/s'
    | 'MB'
    | 'cores'
    | '×'
    | 'bytes'
    | 'connections'
    | '/1,000 jobs'
  /** Which way is good. Figures without it are told, not compared. */
  readonly better?: 'higher' | 'lower'
  /** Gets a chart. Default: only the scenario's first. */
  readonly isHeadline?: boolean
}

export interface Measurement {
  /** Jobs that were counted. */
  jobs: number
  /** By the names of the scenario's figures; not every variant has each. */
  figures: Record<string, number>
  /** Over the timed stretch, whose length is `seconds`. */
  cores: Cores
  seconds: number
  /** Over the same stretch. Records from before it was measured lack it. */
  writes?: Writes
}
