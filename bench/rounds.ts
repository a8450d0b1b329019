/** Owns the order of a run: round by round, scenario by scenario, all peers (or variants) in turn, so that a noisy spell hits each. */
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { NOISE_CORES, untilQuiet } from './cpu.ts'
import type { Database } from './database.ts'
import { forkRelay } from './fork-relay.ts'
import { isOurs, knownPeer } from './peers/known-peers.ts'
import type { Surroundings } from './peers/peer.ts'
import type { RedisUnderTest } from './redis.ts'
import { createSetting, type Measurement, type Scenario } from './scenario.ts'
import { peerOf, sidesOf } from './sides.ts'
import type { Sizes } from './sizes.ts'

export interface Result extends Measurement {
  round: number
  scenario: string
  /** The peer, or the variant of longshore. */
  side: string
  /** Others used the machine meanwhile. */
  isNoisy: boolean
}

/** A peer could not do it: said in the results, so that nobody takes it for forgotten. */
export interface Unmeasured {
  round: number
  scenario: string
  side: string
  reason: string
}

export interface RunOptions {
  scenarios: readonly Scenario[]
  peers: readonly string[]
  sizes: Sizes
  database: Database
  /** Where a peer needs one. */
  redis: RedisUnderTest | undefined
  /** Folder of the built longshore. */
  longshore: string
  profile: 'worker' | 'producer' | undefined
  onStart: (round: number, scenario: Scenario, side: string) => void
  /** The database is still as the measurement left it; `profiles` is a folder, where they were asked for. */
  onResult: (result: Result, scenario: Scenario, profiles: string | undefined) => Promise<void>
  onUnmeasured: (unmeasured: Unmeasured) => void
}

export async function runRounds(
  options: RunOptions,
): Promise<{ results: Result[]; unmeasured: Unmeasured[] }> {
  const results: Result[] = []
  const unmeasured: Unmeasured[] = []
  for (let round = 1; round <= options.sizes.rounds; round++) {
    for (const scenario of options.scenarios) {
      const sides = sidesOf(scenario, options.peers)
      // Each is first in turn, so that none always runs on the warmer machine.
      for (let i = 0; i < sides.length; i++) {
        const side = sides[(i + round - 1) % sides.length] as string
        options.onStart(round, scenario, side)
        const profiles = options.profile && mkdtempSync(join(tmpdir(), `longshore-profile-${scenario.id}-`))
        let measured: Measurement
        try {
          measured = await measure(options, scenario, side, profiles)
        } catch (cause) {
          const reason = (cause as Error).message
          if (isOurs(peerOf(scenario, side))) throw new Error(`${scenario.id}, ${side}: ${reason}`, { cause })
          unmeasured.push({ round, scenario: scenario.id, side, reason })
          options.onUnmeasured({ round, scenario: scenario.id, side, reason })
          continue
        }
        const isNoisy = (measured.cores.others ?? 0) > NOISE_CORES
        const result: Result = { round, scenario: scenario.id, side, ...measured, isNoisy }
        results.push(result)
        await options.onResult(result, scenario, profiles)
      }
    }
  }
  return { results, unmeasured }
}

async function measure(
  options: RunOptions,
  scenario: Scenario,
  side: string,
  profiles: string | undefined,
): Promise<Measurement> {
  const { database, sizes, longshore } = options
  const variant = scenario.variants?.find(({ name }) => name === side)
  const peerName = peerOf(scenario, side)
  const { needs, load } = knownPeer(peerName)
  const redis = needs.includes('redis') ? options.redis : undefined
  const surroundings: Surroundings = {
    postgres: database.url,
    longshore,
    load: scenario.load ?? 'backlog',
    ...(redis ? { redis: redis.url } : {}),
    ...(variant ? { workload: variant.workload } : {}),
  }
  const profile = options.profile && profiles ? { who: options.profile, folder: profiles } : undefined
  const open = await load()
  const peer = await open(surroundings)
  await Promise.all([database.reset(), options.redis?.reset()])
  await peer.install()
  const relay = peer.startRelay && (await forkRelay({ peer: peerName, surroundings }))
  await untilQuiet(sizes.patienceMs)
  const setting = createSetting({
    peerName,
    side,
    peer,
    surroundings,
    database,
    redis,
    relay,
    sizes,
    profile,
  })
  try {
    return await scenario.measure(setting)
  } finally {
    setting.killWorkers()
    relay?.kill()
  }
}
