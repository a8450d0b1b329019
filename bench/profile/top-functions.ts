/** Owns reading a .cpuprofile: which functions the time went to, by self time. */
import { readFileSync } from 'node:fs'
import type { Profiler } from 'node:inspector'

export interface FunctionTime {
  readonly name: string
  readonly place: string
  readonly selfMs: number
}

export interface ProfileSummary {
  readonly functions: readonly FunctionTime[]
  readonly idleMs: number
  /** All but idle time. */
  readonly busyMs: number
}

export function readProfile(file: string): ProfileSummary {
  const { nodes, samples = [], timeDeltas = [] } = JSON.parse(readFileSync(file, 'utf8')) as Profiler.Profile
  const frames = new Map(nodes.map(node => [node.id, node.callFrame]))
  const times = new Map<string, { name: string; place: string; selfMs: number }>()
  let idleMs = 0
  let busyMs = 0
  samples.forEach((id, i) => {
    const frame = frames.get(id)
    // A sample holds until the next one.
    const ms = Math.max(0, timeDeltas[i + 1] ?? 0) / 1000
    if (!frame) return
    if (frame.functionName === '(idle)') {
      idleMs += ms
      return
    }
    busyMs += ms
    const name = frame.functionName || '(anonymous)'
    const place = frame.url ? `${shorten(frame.url)}:${frame.lineNumber + 1}` : ''
    const key = `${name} ${place}`
    const entry = times.get(key) ?? { name, place, selfMs: 0 }
    entry.selfMs += ms
    times.set(key, entry)
  })
  return { functions: [...times.values()].sort((a, b) => b.selfMs - a.selfMs), idleMs, busyMs }
}

const shorten = (url: string) =>
  url.replace(/^.*\/longshore-bench-[^/]*\/dist\//, 'longshore/').replace(/^.*\/node_modules\//, '')
