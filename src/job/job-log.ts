/** Owns the vocabulary of job logs: what a handler may say while it runs, and what is read back. */

export type LogLevel = 'debug' | 'info' | 'warn' | 'error'

/** Says something about the run. Returns at once, never throws, never fails the job; what cannot be kept is cut or dropped, and counted. */
export interface JobLog {
  /** With level `info`. `data`: whatever helps, kept as JSON. */
  (message: string, data?: unknown): void
  debug(message: string, data?: unknown): void
  warn(message: string, data?: unknown): void
  error(message: string, data?: unknown): void
}

export interface LogLine {
  /** For `getLogs({ after })`. */
  readonly id: string
  /** The number of the attempt that wrote it, from 1. */
  readonly attempt: number
  /** By the database's clock. */
  readonly at: Date
  readonly level: LogLevel
  readonly message: string
  /** Null when there was none. */
  readonly data: unknown
}

/** How far a job is, as its handler said last. */
export interface Progress {
  readonly done: number
  /** Null when the handler did not say. */
  readonly total: number | null
  readonly attempt: number
  /** When it was stored, by the database's clock. */
  readonly at: Date
}

/** Why a line was dropped. */
export type DropReason =
  /** The run had written as many lines as it may. */
  | 'run'
  /** Lines came faster than Postgres took them. */
  | 'buffer'
  /** Its run had ended. */
  | 'late'
  /** Postgres refused it. */
  | 'refused'
  /** The worker stopped, and Postgres did not take it in time. */
  | 'stop'

/** What became of the lines of a worker's runs, since it was made. */
export interface LogCounts {
  readonly written: number
  /** Written, but not whole: too long, or not what Postgres can hold. */
  readonly cut: number
  readonly dropped: Readonly<Record<DropReason, number>>
}
