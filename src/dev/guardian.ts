/**
 * Owns the parent's side of the guardian: everything that may outlive a killed parent (servers, short commands that
 * write files, temporary folders) is started through it. See guardian-process.mjs for the other side.
 */
import { spawn } from 'node:child_process'
import { rm } from 'node:fs/promises'
import { LongshoreError } from '../job/errors.ts'
import { type Answer, type Exit, type GuardedProcess, guardedProcess } from './guarded-process.ts'
import { guardianFile, guardianMark } from './guardian-process.mjs'
import type { ServerUser } from './server-user.ts'

export interface Command {
  readonly command: string
  readonly args: readonly string[]
  /** The whole environment: nothing of the parent's is handed on, so that a server runs the same everywhere. */
  readonly env: Readonly<Record<string, string>>
  readonly user?: ServerUser | undefined
  /** Default: `/`, which every user can enter. */
  readonly cwd?: string
}

export interface ServerCommand extends Command {
  /** The line of output that says that the server accepts connections, as a regular expression. */
  readonly readyLine?: string
  /** Ends it fast when the parent is gone; SIGKILL follows if it does not. */
  readonly endSignal: NodeJS.Signals
}

export interface Guardian {
  /** Makes a temporary folder that is removed when the guardian ends. */
  makeFolder(base: string): Promise<string>
  /** Runs a command to its end; one that outstays `limitMs` (default: a minute) is killed. */
  run(command: Command, limitMs?: number): Promise<Exit>
  serve(command: ServerCommand): Promise<GuardedProcess>
  /** Ends what still runs, removes the temporary folders, and resolves when the guardian is gone. */
  end(): Promise<void>
}

export function openGuardian(): Guardian {
  const child = spawn(process.execPath, [guardianFile, guardianMark], {
    cwd: '/',
    detached: true,
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    env: nodeEnv(),
  })
  const listeners = new Map<number, (answer: Answer) => void>()
  const folders: string[] = []
  const running = new Set<GuardedProcess>()
  let lastId = 0
  let waiting = 0

  const gone = new Promise<{ isDone: boolean }>(resolve => {
    child.on('error', () => resolve({ isDone: false }))
    child.once('exit', code => resolve({ isDone: code === 0 }))
  })
  const cleaned = gone.then(async ({ isDone }) => {
    if (!isDone) await endWithoutGuardian()
    for (const [id, tell] of listeners) tell({ id, event: 'refused', reason: 'its guardian has ended' })
  })
  child.on('message', (answer: Answer) => listeners.get(answer.id)?.(answer))
  child.unref()
  child.channel?.unref()

  // A running store does not keep its parent alive; a question to the guardian does, until it is answered.
  async function held<T>(work: Promise<T>): Promise<T> {
    if (waiting++ === 0) child.channel?.ref()
    try {
      return await work
    } finally {
      if (--waiting === 0) child.channel?.unref()
    }
  }

  function post(message: object): void {
    if (child.connected) child.send(message, () => {})
  }

  function ask(request: object, onAnswer: (answer: Answer) => void): number {
    const id = ++lastId
    listeners.set(id, onAnswer)
    post({ id, ...request })
    if (!child.connected)
      queueMicrotask(() => onAnswer({ id, event: 'refused', reason: 'its guardian has ended' }))
    return id
  }

  /** Only if the guardian itself was killed: the parent then does its work, as well as it can. */
  async function endWithoutGuardian(): Promise<void> {
    for (const { pid } of running) killQuietly(pid)
    for (const folder of folders) {
      await rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 }).catch(() => {})
    }
  }

  function start(request: Command | ServerCommand): Promise<GuardedProcess> {
    return new Promise((resolve, reject) => {
      const process = guardedProcess({
        held,
        signal: signal => post({ verb: 'signal', child: id, signal }),
        onSpawned() {
          running.add(process)
          resolve(process)
        },
        onExit(exit) {
          listeners.delete(id)
          running.delete(process)
          reject(unavailable(`${request.command} cannot be run: ${exit.output}`))
        },
      })
      const id = ask({ verb: 'spawn', cwd: '/', endSignal: 'SIGKILL', ...request }, process.hear)
    })
  }

  return {
    makeFolder: base =>
      held(
        new Promise((resolve, reject) => {
          const id = ask({ verb: 'folder', base, prefix: 'longshore-' }, answer => {
            listeners.delete(id)
            if (answer.event !== 'folder') {
              const reason = answer.event === 'refused' ? answer.reason : answer.event
              reject(unavailable(`no temporary folder can be made in ${base}: ${reason}`))
              return
            }
            folders.push(answer.folder)
            resolve(answer.folder)
          })
        }),
      ),
    async run(command, limitMs = 60_000) {
      const process = await held(start(command))
      const limit = setTimeout(() => process.signal('SIGKILL'), limitMs)
      try {
        return await process.untilExit()
      } finally {
        clearTimeout(limit)
      }
    },
    serve: command => held(start(command)),
    async end() {
      child.ref()
      if (child.connected) child.disconnect()
      await cleaned
    },
  }
}

/** What a bare `node` needs; above all not NODE_OPTIONS, with which loaders and debuggers would come along. */
export function nodeEnv(): Record<string, string> {
  const { PATH = '', LD_LIBRARY_PATH } = process.env
  return { PATH, ...(LD_LIBRARY_PATH && { LD_LIBRARY_PATH }) }
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has ended by itself.
  }
}

function unavailable(message: string): LongshoreError {
  return new LongshoreError('STORE_UNAVAILABLE', message)
}
