/**
 * Owns the threads of one worker: made on demand up to a bound, used by one run at a time, ended when they have been idle for a
 * while, and replaced when they have died. Runs that find none wait here, in the order in which they came.
 */
import { LongshoreError } from '../job/errors.ts'
import { messageOf } from '../job/stored-error.ts'
import type { RunningJob } from '../job/task.ts'
import type { Logger } from '../runtime/logger.ts'
import { type JobThread, openThread } from './open-thread.ts'
import type { Run } from './run-job.ts'

export interface ThreadPool {
  /** Load each of them once, in a thread: what cannot work is refused before a job is lost on it. */
  check(tasks: readonly { task: string; module: string }[]): Promise<void>
  /** Calls `start` when the run has a thread that has loaded its module. Not when it left before. */
  enter(run: Run, module: string, start: () => void): void
  /** Run its handler. Only after its `start`. */
  run(run: Run, job: RunningJob<unknown>): Promise<unknown>
  /** It has ended, or was given back while it waited. */
  leave(run: Run): void
  /** Threads that have a run. */
  readonly inUse: number
  /** Those that have no thread yet. */
  waiting(): Run[]
  /** Ends all threads. Resolves when they are gone. */
  close(): Promise<void>
}

interface Use {
  module: string
  thread: JobThread
  loaded: Promise<void>
  hasLoaded: boolean
}

export function createThreadPool(options: {
  maxThreads: number
  memoryMb: number | undefined
  abortGraceMs: number
  /** How long a thread waits for the next job before it is ended. */
  idleMs: number
  logger: Logger
}): ThreadPool {
  /** Every thread that lives, and those that are on their way out. */
  const threads = new Set<JobThread>()
  /** Those that have nothing to do, the latest at the end, and what ends them. */
  const idle = new Map<JobThread, NodeJS.Timeout>()
  const uses = new Map<Run, Use>()
  const waiting = new Map<Run, { module: string; start: () => void }>()
  let isClosed = false

  const open = (): JobThread => {
    const thread = openThread({
      ...options,
      onExit: unheard => {
        if (unheard)
          options.logger.warn({ err: unheard }, 'a thread without a job died; it is replaced when needed')
        threads.delete(thread)
        clearTimeout(idle.get(thread))
        idle.delete(thread)
        next()
      },
    })
    threads.add(thread)
    return thread
  }

  /** One that knows the module, else the one used last: so the others can end. */
  const take = (module: string): JobThread | undefined => {
    const unused = [...idle.keys()].reverse()
    const thread = unused.find(thread => thread.hasLoaded(module)) ?? unused[0]
    if (!thread) return threads.size < options.maxThreads ? open() : undefined
    clearTimeout(idle.get(thread))
    idle.delete(thread)
    return thread
  }

  const rest = (thread: JobThread) => {
    // A result may arrive while the thread is being ended.
    if (!threads.has(thread) || thread.hasEnded) return
    idle.set(thread, setTimeout(() => end(thread), options.idleMs).unref())
  }

  const end = (thread: JobThread): Promise<void> => {
    clearTimeout(idle.get(thread))
    idle.delete(thread)
    return thread.end()
  }

  const next = () => {
    if (isClosed) return
    for (const [run, { module, start }] of waiting) {
      const thread = take(module)
      if (!thread) return
      waiting.delete(run)
      begin(run, { module, thread, loaded: thread.load(module), hasLoaded: false }, start)
    }
  }

  const begin = async (run: Run, use: Use, start: () => void) => {
    uses.set(run, use)
    await use.loaded.catch(() => undefined) // its run is told
    use.hasLoaded = true
    if (uses.get(run) === use) start()
  }

  return {
    async check(tasks) {
      if (tasks.length === 0) return
      const thread = open()
      for (const { task, module } of tasks) {
        await thread.load(module).catch(error => {
          const told = `task ${task}: a thread cannot run the module ${module}: ${messageOf(error)}`
          throw new LongshoreError('CONFIG_INVALID', told, { cause: error })
        })
      }
      rest(thread)
    },
    enter(run, module, start) {
      waiting.set(run, { module, start })
      next()
    },
    async run(run, job) {
      const use = uses.get(run)
      if (!use) throw new Error(`job ${job.id} has no thread`)
      await use.loaded
      return use.thread.run(run, use.module, job)
    },
    leave(run) {
      if (waiting.delete(run)) return
      const use = uses.get(run)
      if (!use) return
      uses.delete(run)
      // One that is still loading may do so for ever.
      if (use.hasLoaded) rest(use.thread)
      else void end(use.thread)
      next()
    },
    get inUse() {
      return uses.size
    },
    waiting: () => [...waiting.keys()],
    async close() {
      isClosed = true
      await Promise.all([...threads].map(end))
    },
  }
}
