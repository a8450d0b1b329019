/** Owns the processes of a run: starts them in their places, does things to them, and ends them all whatever happens. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { eventually } from '../support/signals.ts'
import type { Orders, Told } from './parent.ts'

const CLOCK = fileURLToPath(new URL('shifted-clock.mjs', import.meta.url))
/** Who cannot start while a store is away is started again, as a supervisor would. */
const AGAIN_MS = 500
const LEAVE_MS = 60_000
const START_MS = 60_000

export interface Place {
  /** `worker-1` */
  readonly slot: string
  /** Of the process that has it now: `worker-1.3`. */
  readonly name: string
  readonly isRunning: boolean
  /** By process, as they told last. */
  readonly memory: ReadonlyMap<string, { at: number; rssBytes: number }[]>
  order(orders: Orders): void
  /** SIGKILL, then another one after so many milliseconds. */
  kill(againMs: number): Promise<void>
  /** SIGTERM, then another one. */
  stop(): Promise<void>
  pause(): void
  resume(): void
  /** Resolves when a process is running in this place. */
  untilRunning(): Promise<void>
  /** No more after this one: told by SIGTERM, or by an order. Resolves to what it left with. */
  leave(by: NodeJS.Signals | Orders): Promise<number | NodeJS.Signals | null>
}

export interface CastOptions {
  /** Where the compiled scripts are. */
  scripts: string
  /** Where the output of the processes goes, a file each. */
  logs: string
  /** A process has ended, though nobody made it, or otherwise than it was to. */
  onCrash(name: string, how: string): void
}

export interface Role {
  slot: string
  /** `test/nemesis/work.ts` */
  script: string
  /** For the next process in this place. */
  options(name: string): object
  clockOffsetMs(): number
}

const howEnded = (child: ChildProcess | undefined) => child?.signalCode ?? `exit code ${child?.exitCode}`

export function createCast(cast: CastOptions) {
  const places: (Place & { endNow(): void })[] = []
  const endAll = () => {
    for (const place of places) place.endNow()
  }
  process.on('exit', endAll)

  const begin = (role: Role): Place => {
    let generation = -1
    let name = ''
    let child: ChildProcess | undefined
    let isRunning = false
    let isExpected = false
    let isLast = false
    let again: NodeJS.Timeout | undefined
    const memory = new Map<string, { at: number; rssBytes: number }[]>()

    const start = () => {
      if (isLast) return
      generation++
      name = `${role.slot}.${generation}`
      isExpected = false
      const log = openSync(join(cast.logs, `${name}.log`), 'a')
      const script = resolve(cast.scripts, role.script.replace(/ts$/, 'js'))
      const started = spawn(
        process.execPath,
        ['--import', CLOCK, script, JSON.stringify(role.options(name))],
        {
          env: {
            PATH: process.env['PATH'],
            HOME: process.env['HOME'],
            LONGSHORE_LOG_LEVEL: 'info',
            LONGSHORE_CLOCK_OFFSET_MS: String(role.clockOffsetMs()),
          },
          stdio: ['ignore', log, log, 'ipc'],
        },
      )
      closeSync(log)
      child = started
      const own: { at: number; rssBytes: number }[] = []
      memory.set(name, own)
      started.on('message', (told: Told) => {
        if (told.isRunning) isRunning = true
        if (told.rssBytes) own.push({ at: performance.now(), rssBytes: told.rssBytes })
      })
      started.on('error', () => undefined) // a message to one that is gone
      started.on('exit', () => {
        const wasRunning = isRunning
        isRunning = false
        if (isExpected || isLast) return
        if (wasRunning) cast.onCrash(name, howEnded(started))
        again = setTimeout(start, AGAIN_MS)
      })
    }
    const isGone = () => child?.exitCode !== null || child.signalCode !== null
    const end = async (signal: NodeJS.Signals) => {
      isExpected = true
      clearTimeout(again)
      if (!child || isGone()) return
      const gone = once(child, 'exit')
      child.kill(signal)
      await gone
    }
    start()

    const place: (typeof places)[number] = {
      slot: role.slot,
      get name() {
        return name
      },
      get isRunning() {
        return isRunning
      },
      memory,
      order(orders) {
        if (isRunning && child?.connected) child.send(orders, () => undefined) // it may just have ended
      },
      async kill(againMs) {
        await end('SIGKILL')
        again = setTimeout(start, againMs)
      },
      async stop() {
        const leaving = child
        const limit = setTimeout(() => leaving?.kill('SIGKILL'), LEAVE_MS)
        await end('SIGTERM')
        clearTimeout(limit)
        if (leaving?.exitCode !== 0) cast.onCrash(name, `${howEnded(leaving)} when it was to stop`)
        start()
      },
      pause: () => void child?.kill('SIGSTOP'),
      resume: () => void child?.kill('SIGCONT'),
      async untilRunning() {
        await eventually(`${role.slot} is running`, async () => isRunning, START_MS)
      },
      async leave(by) {
        isLast = true
        clearTimeout(again)
        if (!child || isGone()) return child?.exitCode ?? child?.signalCode ?? null
        const gone = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>
        const limit = setTimeout(() => child?.kill('SIGKILL'), LEAVE_MS)
        if (typeof by === 'string') child.kill(by)
        else child.send(by, () => undefined)
        const [code, signal] = await gone
        clearTimeout(limit)
        return code ?? signal
      },
      endNow() {
        isLast = true
        child?.kill('SIGKILL')
      },
    }
    places.push(place)
    return place
  }

  return {
    begin,
    places: places as readonly Place[],
    place(slot: string): Place {
      const found = places.find(place => place.slot === slot)
      if (!found) throw new Error(`nobody has the place ${slot}`)
      return found
    },
    endAll() {
      endAll()
      process.off('exit', endAll)
    },
  }
}

export type TheCast = ReturnType<typeof createCast>
