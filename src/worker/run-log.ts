/** Owns what one run says: its lines are numbered and bounded here, and gaps told of. A class, as runs are many. */
import type { DropReason, JobLog, LogLevel } from '../job/job-log.ts'
import { toLogData, toLogMessage } from '../job/log-data.ts'
import type { WorkerKey } from '../postgres/secret.ts'
import type { ClaimedJob } from '../postgres/settle-and-claim.ts'

/** A run, and the life of the worker that holds it. */
export interface LoggedRun {
  readonly job: ClaimedJob
  readonly worker: WorkerKey
}

export interface BufferedLine {
  run: LoggedRun
  seq: number
  at: number
  level: LogLevel
  message: string
  data: string | null
  bytes: number
}

/** Where the lines of all runs go. */
export interface LogBuffer {
  /** Lines that one run may write. */
  readonly maxLines: number
  readonly isClosed: boolean
  readonly isFull: boolean
  /** Whether not even a line that tells of a gap has room. */
  readonly isOverfull: boolean
  add(line: BufferedLine): void
  setProgress(run: LoggedRun, done: unknown, total: unknown): void
  drop(reason: DropReason): void
  /** A line was cut. */
  cut(): void
  /** A run has ended: store what it said. */
  hurry(): void
}

/** Of a line, beside its texts. */
const LINE_BYTES = 200

export class RunLog {
  readonly #run: LoggedRun
  readonly #buffer: LogBuffer
  #log: JobLog | undefined
  #hasEnded: boolean
  #hasSaid = false
  #seq = 0
  #missing = 0 // since the last line that was kept
  #missingBecause: DropReason = 'run'

  constructor(run: LoggedRun, buffer: LogBuffer, hasEnded: boolean) {
    this.#run = run
    this.#buffer = buffer
    this.#hasEnded = hasEnded
  }

  /** A function with levels, which may be taken off the context. */
  get log(): JobLog {
    this.#log ??= Object.assign(this.#at('info'), {
      debug: this.#at('debug'),
      warn: this.#at('warn'),
      error: this.#at('error'),
    })
    return this.#log
  }

  get progress(): (done: number, total?: number) => void {
    return (done, total) => {
      if (this.#hasEnded || this.#buffer.isClosed) return
      this.#hasSaid = true
      this.#buffer.setProgress(this.#run, done, total)
    }
  }

  /** The job is settled while its handler goes on. */
  flush(): void {
    if (this.#hasSaid) this.#buffer.hurry()
  }

  /** What is said from now on is dropped. */
  end(): void {
    if (this.#hasEnded) return
    this.#hasEnded = true
    if (!this.#hasSaid) return
    this.#tellMissing()
    this.#buffer.hurry()
  }

  #at(level: LogLevel) {
    return (message: unknown, data?: unknown): void => {
      try {
        this.#write(level, message, data)
      } catch {
        this.#buffer.drop('refused') // a hostile object
      }
    }
  }

  #write(level: LogLevel, message: unknown, data: unknown): void {
    const buffer = this.#buffer
    if (this.#hasEnded || buffer.isClosed) {
      buffer.drop('late')
      return
    }
    this.#hasSaid = true
    if (this.#seq >= buffer.maxLines || buffer.isFull) {
      this.#miss(this.#seq >= buffer.maxLines ? 'run' : 'buffer')
      return
    }
    const told = toLogMessage(message)
    const kept = toLogData(data)
    if (told.isCut || kept.isCut) buffer.cut()
    this.#tellMissing()
    this.#keep(level, told.text, kept.text)
  }

  #keep(level: LogLevel, message: string, data: string | null): void {
    const bytes = LINE_BYTES + 2 * (message.length + (data?.length ?? 0))
    this.#buffer.add({ run: this.#run, seq: ++this.#seq, at: performance.now(), level, message, data, bytes })
  }

  #miss(reason: DropReason): void {
    if (reason !== this.#missingBecause) this.#tellMissing()
    this.#buffer.drop(reason)
    this.#missing++
    this.#missingBecause = reason
  }

  #tellMissing(): void {
    if (this.#missing === 0 || this.#buffer.isOverfull) return
    const why =
      this.#missingBecause === 'run'
        ? `a run may write ${this.#buffer.maxLines} (maxLogLines)`
        : 'they came faster than Postgres took them'
    const what = this.#missing === 1 ? '1 line was dropped here' : `${this.#missing} lines were dropped here`
    this.#keep('warn', `${what}: ${why}`, `{"dropped":${this.#missing}}`)
    this.#missing = 0
  }
}
