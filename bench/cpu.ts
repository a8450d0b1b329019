/** Owns CPU accounting: who used how many cores in a stretch of time, read from /proc (nothing where there is none). */
import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'

/** Cores in use, 1 = one full core. `others`: whoever else is on this machine, kernel threads included. */
export interface Cores {
  postgres?: number
  producer: number
  workers: number
  others?: number
}

export interface Watched {
  /** The postmaster; undefined when the server is not on this machine. */
  postmaster: number | undefined
  workers: readonly number[]
}

/** More than this in the hands of others makes a round *noisy*. */
export const NOISE_CORES = 0.3

const TICKS_PER_SECOND = 100 // USER_HZ, the same on every Linux that Node runs on
const hasProc = process.platform === 'linux'

interface ProcessTimes {
  parent: number
  own: number
  /** Of children that have ended. */
  reaped: number
}

function readProcess(pid: number | string): ProcessTimes | undefined {
  let text: string
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'utf8')
  } catch {
    return undefined
  }
  // The command name may hold spaces: the fields start after its closing parenthesis.
  const field = text
    .slice(text.lastIndexOf(')') + 2)
    .split(' ')
    .map(Number)
  const seconds = (a: number, b: number) => ((field[a] ?? 0) + (field[b] ?? 0)) / TICKS_PER_SECOND
  return { parent: field[1] ?? 0, own: seconds(11, 12), reaped: seconds(13, 14) }
}

/** A postmaster with all of its children, also those that have ended meanwhile. */
function readTree(root: number): number {
  const top = readProcess(root)
  if (!top) return 0
  let total = top.own + top.reaped
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    const times = readProcess(name)
    if (times?.parent === root) total += times.own
  }
  return total
}

function readBusySeconds(): number {
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = readFileSync(
    '/proc/stat',
    'utf8',
  )
    .slice('cpu'.length, 400)
    .trim()
    .split(/\s+/, 8)
    .map(Number)
  return (user + nice + system + irq + softirq + steal) / TICKS_PER_SECOND
}

/** Start watching; the returned function tells the cores used since. This process counts as the producer. */
export function watchCpu(watched: Watched): () => Cores {
  const read = () => {
    const own = process.cpuUsage()
    return {
      seconds: performance.now() / 1000,
      producer: (own.user + own.system) / 1e6,
      workers: watched.workers.reduce((sum, pid) => sum + (readProcess(pid)?.own ?? 0), 0),
      postgres: watched.postmaster === undefined ? undefined : readTree(watched.postmaster),
      busy: hasProc ? readBusySeconds() : undefined,
    }
  }
  const before = read()
  return () => {
    const after = read()
    const seconds = after.seconds - before.seconds
    const cores: Cores = {
      producer: (after.producer - before.producer) / seconds,
      workers: (after.workers - before.workers) / seconds,
    }
    if (after.postgres === undefined || before.postgres === undefined) return cores
    cores.postgres = (after.postgres - before.postgres) / seconds
    if (after.busy === undefined || before.busy === undefined) return cores
    const busy = (after.busy - before.busy) / seconds
    cores.others = Math.max(0, busy - cores.producer - cores.workers - cores.postgres)
    return cores
  }
}

/** Wait until the machine is nearly idle, but no longer than `patienceMs`. */
export async function untilQuiet(patienceMs: number): Promise<void> {
  if (!hasProc) return
  const giveUpAt = performance.now() + patienceMs
  while (performance.now() < giveUpAt) {
    const before = readBusySeconds()
    await pause(250)
    if ((readBusySeconds() - before) / 0.25 < NOISE_CORES / 2) return
  }
}
