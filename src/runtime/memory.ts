/**
 * Owns how much of its memory this process uses: the share of the JavaScript heap, of the control group's limit where there is
 * one, else of the machine. The largest counts, since the first that is full ends the process.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { getHeapStatistics } from 'node:v8'

/** How long what the system said holds, and what the heap did. */
const SYSTEM_MS = 200
const HEAP_MS = 5

const YOUNG_BYTES = 48 * 1024 * 1024
const USABLE = 0.85

/** Returns a share from 0 to 1. */
export function createMemoryGauge(root = '/'): () => number {
  const groups = controlGroups(root)
  const system = kept(() => systemShare(root, groups), SYSTEM_MS)
  const heap = kept(heapShare, HEAP_MS)
  return () => Math.min(1, Math.max(system(), heap()))
}

export function systemShare(root: string, groups = controlGroups(root)): number {
  let share: number | undefined
  for (const group of groups) {
    const limit = amountIn(join(group.folder, group.limit))
    if (limit === undefined || limit >= NO_LIMIT) continue
    const used = amountIn(join(group.folder, group.used)) ?? 0
    // The system frees its file cache before memory runs out.
    const files = fieldIn(join(group.folder, 'memory.stat'), group.files) ?? 0
    share = Math.max(share ?? 0, (used - files) / limit)
  }
  return share ?? machineShare(root)
}

function kept(read: () => number, ms: number): () => number {
  let value = 0
  let readAt = Number.NEGATIVE_INFINITY
  return () => {
    const now = performance.now()
    if (now - readAt > ms) {
      readAt = now
      value = read()
    }
    return value
  }
}

/**
 * What lives long must fit into what the limit leaves beside the young objects: `--max-old-space-size` is the limit of that. V8 gives up
 * before it is full, once collections free little above 80 % of it.
 */
function heapShare(): number {
  const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics()
  return used / ((limit - Math.min(YOUNG_BYTES, limit / 4)) * USABLE)
}

/** Without `/proc` nothing is known: what other systems call free leaves out most of what could be. */
function machineShare(root: string): number {
  const file = join(root, 'proc/meminfo')
  const total = fieldIn(file, 'MemTotal:')
  const available = fieldIn(file, 'MemAvailable:')
  return total === undefined || available === undefined ? 0 : 1 - available / total
}

interface ControlGroup {
  readonly folder: string
  readonly limit: string
  readonly used: string
  readonly files: string
}

const FIRST = {
  limit: 'memory.limit_in_bytes',
  used: 'memory.usage_in_bytes',
  files: 'total_inactive_file',
}
const SECOND = { limit: 'memory.max', used: 'memory.current', files: 'inactive_file' }
/** The first version writes a number near 2^63 for none. */
const NO_LIMIT = 2 ** 60

/** The groups that this process is in, with those above: a limit holds for everything below it. */
function controlGroups(root: string): ControlGroup[] {
  const lines = (textOf(join(root, 'proc/self/cgroup')) ?? '').split('\n')
  return lines.flatMap(line => {
    const [, controllers = '', path = ''] = /^\d+:([^:]*):(.*)$/.exec(line) ?? []
    const isSecond = controllers === ''
    if (!isSecond && !controllers.split(',').includes('memory')) return []
    const top = join(root, isSecond ? 'sys/fs/cgroup' : 'sys/fs/cgroup/memory')
    const files = isSecond ? SECOND : FIRST
    const parts = path.split('/').filter(part => part !== '')
    // In a container the path may be that of the host, and its folder the top.
    return [...parts, ''].map((_, n) => ({ folder: join(top, ...parts.slice(0, n)), ...files }))
  })
}

const textOf = (file: string): string | undefined => {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return undefined // not this kind of system, or not allowed to look
  }
}

/** `max` is none. */
const amountIn = (file: string): number | undefined => {
  const text = textOf(file)?.trim()
  return text && /^\d+$/.test(text) ? Number(text) : undefined
}

const fieldIn = (file: string, name: string): number | undefined => {
  const line = textOf(file)
    ?.split('\n')
    .find(text => text.startsWith(`${name} `))
  const [, value] = line === undefined ? [] : (/(\d+)/.exec(line.slice(name.length)) ?? [])
  return value === undefined ? undefined : Number(value)
}
