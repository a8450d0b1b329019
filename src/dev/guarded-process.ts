/** Owns what the parent knows of one process that its guardian runs: pid, readiness and how it ended. */

export interface Exit {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  /** The last 16 KiB of what it printed. */
  readonly output: string
}

export type Answer =
  | { id: number; event: 'folder'; folder: string }
  | { id: number; event: 'spawned'; pid: number }
  | { id: number; event: 'ready' }
  | ({ id: number; event: 'exit' } & Exit)
  | { id: number; event: 'refused'; reason: string }

export interface GuardedProcess {
  readonly pid: number
  /** Undefined while it runs. */
  readonly exit: Exit | undefined
  /** Resolves with the ready line, or when the process ends: look at `exit`. After `limitMs` it is killed. */
  untilReady(limitMs: number): Promise<void>
  untilExit(): Promise<Exit>
  signal(signal: NodeJS.Signals): void
}

interface Ties {
  /** Keeps the parent alive while it waits. */
  held<T>(work: Promise<T>): Promise<T>
  signal(signal: NodeJS.Signals): void
  onSpawned(): void
  onExit(exit: Exit): void
}

export function guardedProcess(ties: Ties): GuardedProcess & { hear(answer: Answer): void } {
  const lookers = new Set<() => void>()
  let pid = 0
  let isReady = false
  let exit: Exit | undefined

  function until(isTrue: () => boolean): Promise<void> {
    return ties.held(
      new Promise(resolve => {
        const look = () => {
          if (!isTrue()) return
          lookers.delete(look)
          resolve()
        }
        lookers.add(look)
        look()
      }),
    )
  }

  function ended(how: Exit): void {
    exit = how
    ties.onExit(how)
  }

  return {
    get pid() {
      return pid
    },
    get exit() {
      return exit
    },
    async untilReady(limitMs) {
      const limit = setTimeout(() => ties.signal('SIGKILL'), limitMs)
      await until(() => isReady || exit !== undefined)
      clearTimeout(limit)
    },
    async untilExit() {
      await until(() => exit !== undefined)
      return exit as Exit
    },
    signal: ties.signal,
    hear(answer) {
      if (answer.event === 'spawned') {
        pid = answer.pid
        ties.onSpawned()
      } else if (answer.event === 'ready') {
        isReady = true
      } else if (answer.event === 'exit') {
        ended({ code: answer.code, signal: answer.signal, output: answer.output })
      } else if (answer.event === 'refused') {
        ended({ code: null, signal: null, output: answer.reason })
      }
      for (const look of lookers) look()
    },
  }
}
