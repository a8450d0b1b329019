/** Owns the order of a run: round by round, scenario by scenario, all peers (or variants) in turn, so that a noisy spell hits each. */
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { NOISE_CORES, untilQuiet } from './cpu.ts'
import type { Database } from './database.ts'
import { knownPeer, OURS } from './peers/known-peers.ts'
import type { Surroundings } from './peers/peer.ts'
import { createSetting, type Measurement, type Scenario } from './scenario.ts'
import { sidesOf } from './sides.ts'
import type { Sizes } from './sizes.ts'

export interface Result extends Measurement {
  round: number
  scenario: string
  /** The peer, or the variant of longshore. */
  side: string
  /** Others used the machine meanwhile. */
  isNoisy: boolean
}

export interface RunOptions {
  scenarios: readonly Scenario[]
  peers: readonly string[]
  sizes: Sizes
  database: Database
  surroundings: Surroundings
  profile: 'worker' | 'producer' | undefined
  onStart: (round: number, scenario: Scenario, side: string) => void
  /** The database is still as the measurement left it; `profiles` is a folder, where they were asked for. */
  onResult: (result: Result, scenario: Scenario, profiles: string | undefined) => Promise<void>
}

export async function runRounds(options: RunOptions): Promise<Result[]> {
  const results: Result[] = []
  for (let round = 1; round <= options.sizes.rounds; round++) {
    for (const scenario of options.scenarios) {
      const sides = sidesOf(scenario, options.peers)
      // Each is first in turn, so that none always runs on the warmer machine.
      for (let i = 0; i < sides.length; i++) {
        const side = sides[(i + round - 1) % sides.length] as string
        options.onStart(round, scenario, side)
        const profiles = options.profile && mkdtempSync(join(tmpdir(), `longshore-profile-${scenario.id}-`))
        const measured = await measure(options, scenario, side, profiles)
        const isNoisy = (measured.cores.others ?? 0) > NOISE_CORES
        const result: Result = { round, scenario: scenario.id, side, ...measured, isNoisy }
        results.push(result)
        await options.onResult(result, scenario, profiles)
      }
    }
  }
  return results
}

async function measure(
  options: RunOptions,
  scenario: Scenario,
  side: string,
  profiles: string | undefined,
): Promise<Measurement> {
  const { database, sizes } = options
  const variant = scenario.variants?.find(({ name }) => name === side)
  const peerName = variant ? OURS : side
  const surroundings = variant
    ? { ...options.surroundings, workload: variant.workload }
    : options.surroundings
  const profile = options.profile && profiles ? { who: options.profile, folder: profiles } : undefined
  const open = await knownPeer(peerName).load()
  const peer = await open(surroundings)
  await database.reset()
  await peer.install()
  await untilQuiet(sizes.patienceMs)
  const setting = createSetting({ peerName, side, peer, surroundings, database, sizes, profile })
  try {
    return await scenario.measure(setting)
  } catch (cause) {
    throw new Error(`${scenario.id}, ${side}: ${(cause as Error).message}`, { cause })
  } finally {
    setting.killWorkers()
  }
}
