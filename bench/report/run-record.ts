/** Owns what is kept of a run: what was measured, how, where and when. */
import { readFileSync } from 'node:fs'
import { availableParallelism, cpus, release, type as systemName, totalmem } from 'node:os'
import { fileURLToPath } from 'node:url'
import type { Sizes } from '../measure/sizes.ts'
import { knownPeer } from '../peers/known-peers.ts'
import type { Settings } from '../peers/tuning.ts'
import type { Result } from '../run/rounds.ts'
import type { Summary } from '../summary/summary.ts'

export interface RunRecord {
  command: string
  at: string
  tookSeconds: number
  machine: string
  node: string
  postgres: string
  redis: readonly string[]
  /** What `--quick` did not measure. */
  leftOut: readonly string[]
  peers: readonly RecordedPeer[]
  sizes: Sizes
  summary: Summary
  results: readonly Result[]
}

export interface RecordedPeer {
  name: string
  title: string
  version: string
  durability: string
  /** Jobs in its drains and on its whole way, where those are fewer than the others'. */
  fewerJobs?: number
  settings?: Settings
  found?: string
  source?: string
}

const root = fileURLToPath(new URL('../../', import.meta.url))

export const describeMachine = (): string =>
  `${availableParallelism()} cores, ${cpus()[0]?.model}, ${Math.round(totalmem() / 2 ** 30)} GB, ${systemName()} ${release()}`

export async function recordPeer(name: string): Promise<RecordedPeer> {
  const { title, durability, fewerJobs, package: packageName, tuning } = knownPeer(name)
  const tuned = await tuning?.()
  return {
    name,
    title,
    version: versionOf(packageName),
    durability,
    ...(fewerJobs === undefined ? {} : { fewerJobs }),
    ...(tuned ? { settings: tuned.used, found: tuned.found, source: tuned.source } : {}),
  }
}

/** Of this repository where there is no package. */
function versionOf(packageName: string | undefined): string {
  const folder = packageName === undefined ? root : `${root}node_modules/${packageName}/`
  return JSON.parse(readFileSync(`${folder}package.json`, 'utf8')).version
}
