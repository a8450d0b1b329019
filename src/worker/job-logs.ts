/**
 * Owns what handlers say while they run, from the call to the statement that stores it. A call only puts a line into a bounded
 * buffer; one statement at a time takes lines from there, every quarter of a second, when many wait, and at once when a run
 * ends. While Postgres does not take them they are kept up to the bound. Then the newest are dropped: what is kept has no
 * gaps but at the places that a line of their own tells of, and dropping costs nothing just when there is most to do.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { DropReason, LogCounts } from '../job/job-log.ts'
import type { WorkerKey } from '../postgres/secret.ts'
import type { ClaimedJob } from '../postgres/settle-and-claim.ts'
import { isDataError } from '../postgres/transient-error.ts'
import type { NewLine, NewProgress } from '../postgres/write-logs.ts'
import type { Logger } from '../runtime/logger.ts'
import { pauseMs } from '../runtime/retry.ts'
import { type BufferedLine, type LogBuffer, type LoggedRun, RunLog } from './run-log.ts'

export interface JobLogs {
  /** Of one life of the worker, which proves to Postgres that the runs are its own. */
  of(worker: WorkerKey): RunLogs
  /** Sends what is left, for a bounded time. */
  close(): Promise<void>
}

export interface RunLogs {
  open(run: ClaimedJob, hasEnded: boolean): RunLog
}

export interface RunningLogCounts extends LogCounts {
  written: number
  cut: number
  dropped: Record<DropReason, number>
}

export const noLogCounts = (): RunningLogCounts => ({
  written: 0,
  cut: 0,
  dropped: { run: 0, buffer: 0, late: 0, refused: 0, stop: 0 },
})

const FLUSH_MS = 250
/** Runs that end one after another share a statement. */
const LEAST_MS = 20
const MANY_LINES = 500
/** In one statement. */
const MOST_SENT = 1000
const MOST_SENT_BYTES = 1024 * 1024
const PAUSES = { firstMs: 250, maxMs: 5000 }
const CLOSE_MS = 2000
const CLOSE_PAUSE_MS = 50
/** The buffer. */
const MOST_LINES = 10_000
const MOST_BYTES = 16 * 1024 * 1024
/** Beyond that, so that a gap can be told of even when the buffer is full. */
const MOST_NOTES = 1000
const MOST_PROGRESS = 10_000
export function createJobLogs(options: {
  /** Lines that one run may write. */
  maxLines: number
  /** Answers how many lines were refused. */
  write: (worker: WorkerKey, lines: NewLine[], progress: NewProgress[]) => Promise<number>
  counts: RunningLogCounts
  logger: Logger
}): JobLogs {
  const { counts, logger } = options
  let lines: BufferedLine[] = [] // those under way are not among them
  let held = 0 // with those under way
  let heldBytes = 0
  let progress = new Map<string, Progress>() // by lease and job: the newest of each run
  let timer: NodeJS.Timeout | undefined
  let timerAt = 0
  let notBefore = 0
  let underWay: Promise<void> | undefined
  let isHurried = false
  let failures = 0
  let isDropping = false // an episode: from the first that finds the buffer full until it is half empty
  let droppedBefore = 0
  let isClosed = false

  const schedule = () => {
    if (underWay || isClosed) return // its end looks again
    const now = performance.now()
    const at = Math.max(notBefore, isHurried ? now : now + FLUSH_MS)
    if (timer && timerAt <= at) return
    clearTimeout(timer)
    timerAt = at
    timer = setTimeout(flush, at - now)
  }
  const soon = () => {
    if (!timer && !underWay) schedule()
  }
  const hurry = () => {
    if (isHurried) return
    isHurried = true
    schedule()
  }

  const flush = () => {
    clearTimeout(timer)
    timer = undefined
    isHurried = false
    if (underWay || (lines.length === 0 && progress.size === 0)) return
    notBefore = performance.now() + LEAST_MS
    underWay = send().finally(() => {
      underWay = undefined
      if (lines.length >= MANY_LINES) isHurried = true
      if (lines.length > 0 || progress.size > 0) schedule()
    })
  }

  const takeLines = (): BufferedLine[] => {
    let bytes = 0
    let taken = 0
    for (const line of lines) {
      bytes += line.bytes
      if (taken === MOST_SENT || (taken > 0 && bytes > MOST_SENT_BYTES)) break
      taken++
    }
    const sent = taken === lines.length ? lines : lines.slice(0, taken)
    lines = sent === lines ? [] : lines.slice(taken)
    return sent
  }

  const send = async () => {
    const sent = takeLines()
    const sentProgress = progress
    progress = new Map()
    try {
      const said = [...sentProgress.values()]
      // Of more than one life only when the worker has begun anew.
      for (const worker of new Set([...sent, ...said].map(({ run }) => run.worker))) {
        const ofWorker = ({ run }: { run: LoggedRun }) => run.worker === worker
        await write(worker, sent.filter(ofWorker), said.filter(ofWorker))
      }
      recovered()
    } catch (error) {
      lines = sent.filter(line => line.bytes > 0).concat(lines)
      for (const [run, value] of sentProgress) if (!progress.has(run)) progress.set(run, value)
      notBefore = performance.now() + pauseMs(++failures, PAUSES)
      if (failures === 1)
        logger.warn(
          { err: error },
          'could not store the log lines of jobs; they are kept up to a bound and tried again. Jobs go on',
        )
    }
  }

  /** Lines that Postgres refuses for what they hold are found by halves, so that they do not hold up the others. */
  const write = async (worker: WorkerKey, sent: BufferedLine[], values: Progress[]): Promise<void> => {
    const now = performance.now()
    try {
      const refused = await options.write(
        worker,
        sent.map(({ run, seq, at, level, message, data }) => {
          return { run: run.job, seq, ageMs: Math.round(now - at), level, message, data }
        }),
        values.map(({ run, done, total }) => ({ run: run.job, done, total })),
      )
      counts.written += sent.length - refused
      if (refused > 0) drop('refused', refused)
      for (const line of sent) release(line)
    } catch (error) {
      if (!isDataError(error) || (sent.length === 0 && values.length === 0)) throw error
      if (values.length > 0) return write(worker, sent, []) // it is told again soon
      if (sent.length === 1) {
        for (const line of sent) release(line)
        drop('refused')
        if (counts.dropped.refused === 1)
          logger.warn(
            { err: error },
            'Postgres refused a log line of a job; it is dropped, as more like it will be',
          )
        return
      }
      const half = Math.ceil(sent.length / 2)
      await write(worker, sent.slice(0, half), [])
      await write(worker, sent.slice(half), [])
    }
  }

  const release = (line: BufferedLine) => {
    held--
    heldBytes -= line.bytes
    line.bytes = 0
  }

  const drop = (reason: DropReason, many = 1) => {
    counts.dropped[reason] += many
  }

  const recovered = () => {
    if (failures > 0) logger.info('log lines of jobs are stored again')
    failures = 0
    if (!isDropping || held > MOST_LINES / 2) return
    isDropping = false
    logger.warn(
      { dropped: counts.dropped.buffer - droppedBefore },
      'the buffer of log lines has room again; so many were dropped meanwhile',
    )
  }

  const buffer: LogBuffer = {
    maxLines: options.maxLines,
    get isClosed() {
      return isClosed
    },
    get isFull() {
      return held >= MOST_LINES || heldBytes >= MOST_BYTES
    },
    get isOverfull() {
      return isClosed || held >= MOST_LINES + MOST_NOTES
    },
    add(line) {
      lines.push(line)
      held++
      heldBytes += line.bytes
      if (lines.length === MANY_LINES) hurry()
      else soon()
    },
    setProgress(run, done, total) {
      const key = `${run.job.leaseToken} ${run.job.id}`
      if (!isNumber(done) || (progress.size >= MOST_PROGRESS && !progress.has(key))) return
      progress.set(key, { run, done, total: isNumber(total) ? total : null })
      soon()
    },
    drop(reason) {
      if (reason === 'buffer' && !isDropping) {
        isDropping = true
        droppedBefore = counts.dropped.buffer
        logger.warn(
          { lines: held },
          'the buffer of log lines is full; what jobs log now is dropped, and counted',
        )
      }
      drop(reason)
    },
    cut() {
      counts.cut++
    },
    hurry,
  }

  return {
    of: worker => ({ open: (job, hasEnded) => new RunLog({ job, worker }, buffer, hasEnded) }),
    async close() {
      const until = performance.now() + CLOSE_MS
      const left = () => until - performance.now()
      while ((held > 0 || progress.size > 0) && left() > 0) {
        flush()
        await Promise.race([underWay, pause(left(), undefined, { ref: false })])
        if (failures > 0) await pause(CLOSE_PAUSE_MS)
      }
      isClosed = true
      clearTimeout(timer)
      if (held === 0) return
      drop('stop', held)
      logger.warn({ lines: held }, 'stopping with log lines of jobs that Postgres did not take in time')
      lines = []
      progress.clear()
    },
  }
}

interface Progress {
  run: LoggedRun
  done: number
  total: number | null
}

const isNumber = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value)
