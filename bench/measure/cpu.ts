/** Owns CPU accounting: who used how many cores in a stretch of time, read from /proc (nothing where there is none). */
import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'

/** What is accounted for. */
export const PARTS = ['postgres', 'redis', 'relay', 'producer', 'workers'] as const
export type Part = (typeof PARTS)[number]

/**
 * Cores in use, 1 = one full core; a part that there is not, or that runs elsewhere, is left out. `others`: whoever else
 * is on this machine, kernel threads included.
 */
export type Cores = Partial<Record<Part | 'others', number>>

/** Process ids; undefined where there is none on this machine. */
export interface WatchedServers {
  readonly postmaster: number | undefined
  readonly redis: number | undefined
  readonly relay: number | undefined
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
export function watchCpu(servers: WatchedServers, workers: readonly number[]): () => Cores {
  const readOwn = (pid: number | undefined) => (pid === undefined ? undefined : (readProcess(pid)?.own ?? 0))
  const readParts = (): Record<Part, number | undefined> => {
    const own = process.cpuUsage()
    return {
      postgres: servers.postmaster === undefined ? undefined : readTree(servers.postmaster),
      redis: readOwn(servers.redis),
      relay: readOwn(servers.relay),
      producer: (own.user + own.system) / 1e6,
      workers: workers.reduce((sum, pid) => sum + (readOwn(pid) ?? 0), 0),
    }
  }
  const read = () => ({
    seconds: performance.now() / 1000,
    parts: readParts(),
    busy: hasProc ? readBusySeconds() : undefined,
  })
  const before = read()
  return () => {
    const after = read()
    const seconds = after.seconds - before.seconds
    const cores: Cores = {}
    let known = 0
    for (const part of PARTS) {
      const [from, to] = [before.parts[part], after.parts[part]]
      if (from === undefined || to === undefined) continue
      cores[part] = (to - from) / seconds
      known += cores[part]
    }
    if (after.busy === undefined || before.busy === undefined || cores.postgres === undefined) return cores
    cores.others = Math.max(0, (after.busy - before.busy) / seconds - known)
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
