/**
 * Owns the parent's side of one thread that runs handlers: it loads a module, runs one job at a time, and whatever ends the thread
 * fails only what it was doing. See job-thread.mjs for the other side.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { Worker as Thread } from 'node:worker_threads'
import { LongshoreError } from '../job/errors.ts'
import type { LogLevel } from '../job/job-log.ts'
import { messageOf } from '../job/stored-error.ts'
import type { RunningJob } from '../job/task.ts'
import { jobThreadFile } from './job-thread.mjs'
import type { Run } from './run-job.ts'
import type { RunLog } from './run-log.ts'
import { type PackedThrown, unpackThrown } from './thrown-in-thread.ts'

export interface JobThread {
  /** It is on its way out, or gone: it runs no more. */
  readonly hasEnded: boolean
  hasLoaded(module: string): boolean
  /** Rejects when the module cannot be loaded there, or has no handler. */
  load(module: string): Promise<void>
  /** What the handler returns or throws. When the run's signal fires, so does the handler's; after the grace the thread is ended. */
  run(run: Run, module: string, job: RunningJob<unknown>): Promise<unknown>
  /** Ends it, whatever it does. Resolves when it is gone, or cannot be interrupted. */
  end(): Promise<void>
}

export interface ThreadOptions {
  /** Largest heap of old objects; undefined: what V8 thinks right. */
  memoryMb: number | undefined
  abortGraceMs: number
  /** With the reason if it died while it had nothing to do: then no run reports it. */
  onExit: (unheard?: LongshoreError) => void
}

type Told =
  | { event: 'loaded' }
  | { event: 'not loaded'; thrown: PackedThrown }
  | { event: 'returned'; value: unknown }
  | { event: 'threw'; thrown: PackedThrown }
  | { event: 'refused'; problem: string }
  | { event: 'crashed'; origin: 'uncaughtException' | 'unhandledRejection'; thrown: PackedThrown }
  | { event: 'asked'; call: number; id: number; question: Question }
  | { event: 'said'; call: number; level: LogLevel; message: string; data: unknown }
  | { event: 'progress'; call: number; done: number; total: number | undefined }

type Question = { what: 'group' } | { what: 'parents'; task: string | null; after: string }

/** A module that waits for something at its top level would hold its thread for ever. */
const LOAD_MS = 30_000
/** Native code cannot be interrupted: a thread inside it is left behind. */
const END_MS = 2000

export function openThread(options: ThreadOptions): JobThread {
  const abortedCall = new Int32Array(new SharedArrayBuffer(4))
  const loaded = new Set<string>()
  let calls = 0
  let current: Run | undefined
  let last: Run | undefined // also when it has ended
  let waiting: { resolve: (value: unknown) => void; reject: (error: unknown) => void } | undefined
  let gone: LongshoreError | undefined
  let crash: { how: string; error: unknown } | undefined
  let hasEnded = false

  // With the flags of this process: if it runs TypeScript, so does the thread.
  const thread = new Thread(jobThreadFile, {
    workerData: { longshoreJobThread: { abortedCall: abortedCall.buffer } },
    ...(options.memoryMb === undefined
      ? {}
      : { resourceLimits: { maxOldGenerationSizeMb: options.memoryMb } }),
  })
  thread.unref()
  thread.on('message', told => onTold(told as Told))
  thread.on('messageerror', error => settle(waiting => waiting.reject(refusedResult(error.message))))
  thread.on('error', error => {
    crash ??= howItDied(error, options.memoryMb)
  })
  thread.on('exit', code => {
    gone = crashed(
      hasEnded ? 'was ended' : (crash?.how ?? `was ended by process.exit(${code})`),
      crash?.error,
    )
    const isUnheard = !waiting && !hasEnded
    settle(waiting => waiting.reject(gone))
    options.onExit(isUnheard ? gone : undefined)
  })

  const onTold = (told: Told) => {
    switch (told?.event) {
      case 'loaded':
        return settle(waiting => waiting.resolve(undefined))
      case 'not loaded': {
        const error = unpackThrown(told.thrown)
        return settle(waiting =>
          waiting.reject(crashed(`could not load its module: ${messageOf(error)}`, error)),
        )
      }
      case 'returned':
        return settle(waiting => waiting.resolve(told.value))
      case 'threw':
        return settle(waiting => waiting.reject(unpackThrown(told.thrown)))
      case 'refused':
        return settle(waiting => waiting.reject(refusedResult(told.problem)))
      case 'crashed': {
        const error = unpackThrown(told.thrown)
        const what = told.origin === 'unhandledRejection' ? 'an unhandled rejection' : 'an uncaught exception'
        crash = { how: `died of ${what}: ${messageOf(error)}`, error }
        return
      }
      case 'asked':
        return void answer(told)
      case 'said': {
        const { log } = logOf(told.call)
        return (told.level === 'info' ? log : log[told.level])(told.message, told.data)
      }
      case 'progress':
        return logOf(told.call).progress(told.done, told.total)
    }
  }

  /** What is said of a job that has ended is dropped and counted there. */
  const logOf = (call: number): RunLog => {
    const run = last as Run
    return call === calls ? run.log : run.settings.logs.open(run.claimed, true)
  }

  /** What it was told last is over. */
  const settle = (how: (was: NonNullable<typeof waiting>) => void) => {
    const was = waiting
    waiting = undefined
    current = undefined
    thread.unref()
    if (was) how(was)
  }

  /** Holds the process until it is answered. */
  const tell = (message: { verb: 'load' | 'run'; module: string; [what: string]: unknown }) =>
    new Promise<unknown>((resolve, reject) => {
      if (gone) return reject(gone)
      try {
        thread.postMessage(message)
      } catch (error) {
        return reject(refusedPayload(error))
      }
      crash = undefined // one that a handler of `uncaughtException` survived
      thread.ref()
      waiting = { resolve, reject }
    })

  /** What a handler asks for, or reports, of its own job: see `contextOf` in job-thread.mjs. */
  const answer = async ({ call, id, question }: Told & { event: 'asked' }) => {
    try {
      if (!current || call !== calls) throw new LongshoreError('LEASE_LOST', 'the job has ended')
      const { settings, claimed } = current
      const value =
        question.what === 'group'
          ? await settings.readGroup(claimed)
          : await settings.readParents(claimed, question.task, question.after)
      thread.postMessage({ verb: 'answer', id, value })
    } catch (error) {
      const code = error instanceof LongshoreError ? error.code : 'STORE_UNAVAILABLE'
      thread.postMessage({ verb: 'answer', id, problem: { code, message: messageOf(error) } })
    }
  }

  const end = async () => {
    hasEnded = true
    thread.ref()
    await Promise.race([thread.terminate(), pause(END_MS, undefined, { ref: false })])
    thread.unref()
  }

  return {
    get hasEnded() {
      return hasEnded
    },
    hasLoaded: module => loaded.has(module),
    async load(module) {
      if (loaded.has(module)) return
      let isLate = false
      const limit = setTimeout(() => {
        isLate = true
        void end()
      }, LOAD_MS)
      try {
        await tell({ verb: 'load', module })
        loaded.add(module)
      } catch (error) {
        throw isLate ? crashed(`could not load its module in ${LOAD_MS} ms: what does it wait for?`) : error
      } finally {
        clearTimeout(limit)
      }
    },
    async run(run, module, job) {
      const call = ++calls
      const { signal } = run
      let grace: NodeJS.Timeout | undefined
      const abort = () => {
        const { code, message } = signal.reason as LongshoreError
        thread.postMessage({ verb: 'abort', call, reason: { code, message } })
        // After the message: a thread that sees the number finds the message.
        Atomics.store(abortedCall, 0, call)
        grace = setTimeout(() => void end(), options.abortGraceMs)
      }
      current = run
      last = run
      try {
        const returned = tell({ verb: 'run', module, call, job: plain(job) })
        if (signal.aborted) abort()
        else signal.addEventListener('abort', abort)
        return await returned
      } finally {
        signal.removeEventListener('abort', abort)
        clearTimeout(grace)
      }
    },
    end,
  }
}

function plain(job: RunningJob<unknown>): RunningJob<unknown> {
  const { id, task, payload, attempt, maxAttempts, priority, createdAt } = job
  return { id, task, payload, attempt, maxAttempts, priority, createdAt }
}

function howItDied(error: unknown, memoryMb: number | undefined): { how: string; error: unknown } {
  if ((error as { code?: unknown }).code !== 'ERR_WORKER_OUT_OF_MEMORY') {
    return { how: `died of ${messageOf(error)}`, error }
  }
  const limit = memoryMb === undefined ? '' : ` of ${memoryMb} MB (threadMemoryMb)`
  return { how: `ran out of its memory${limit}`, error }
}

function crashed(how: string, cause?: unknown): LongshoreError {
  const error = new LongshoreError(
    'THREAD_CRASHED',
    `its thread ${how}`,
    cause === undefined ? {} : { cause },
  )
  // Where it happened is worth keeping; where it was noticed is not.
  if (cause instanceof Error && cause.stack) error.stack = cause.stack
  return error
}

const refusedPayload = (error: unknown) =>
  new LongshoreError(
    'PAYLOAD_INVALID',
    `the payload cannot be handed to a thread, because its schema makes more of it than plain data: ${messageOf(error)}`,
  )

const refusedResult = (problem: string) =>
  new LongshoreError(
    'RESULT_REFUSED',
    `the handler succeeded, but its result cannot be handed over by its thread: ${problem}`,
  )
