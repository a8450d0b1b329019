/** Owns one measurement: one side of one scenario, in empty stores, with a relay beside it where it has one. */
import { untilQuiet } from '../measure/cpu.ts'
import type { Measurement } from '../measure/measurement.ts'
import { createSetting } from '../measure/setting.ts'
import type { Sizes } from '../measure/sizes.ts'
import { knownPeer } from '../peers/known-peers.ts'
import type { Surroundings } from '../peers/peer.ts'
import type { Settings } from '../peers/tuning.ts'
import { type ForkedRelay, forkRelay } from '../processes/fork-relay.ts'
import { type Profiled, profileStretch } from '../profile/stretch-profile.ts'
import type { Scenario } from '../scenarios/scenario.ts'
import type { Database } from '../stores/database.ts'
import type { RedisServers } from '../stores/redis-servers.ts'
import { peerOf } from './sides.ts'

export interface Bench {
  readonly sizes: Sizes
  readonly database: Database
  readonly redis: RedisServers
  /** Folder of the built longshore. */
  readonly longshore: string
}

export interface Special {
  readonly profile?: { readonly who: Profiled; readonly folder: string } | undefined
  /** In place of the peer's own. */
  readonly settings?: Settings
}

export async function measure(
  { sizes, database, redis: servers, longshore }: Bench,
  scenario: Scenario,
  side: string,
  { profile, settings }: Special = {},
): Promise<Measurement> {
  const variant = scenario.variants?.find(({ name }) => name === side)
  const peerName = peerOf(scenario, side)
  const known = knownPeer(peerName)
  const redis = known.redis && servers.get(known.redis)
  const surroundings: Surroundings = {
    postgres: database.url,
    longshore,
    load: scenario.load ?? 'backlog',
    ...(redis ? { redis: redis.url } : {}),
    ...(variant ? { workload: variant.workload } : {}),
    ...(settings ? { settings } : {}),
  }
  const open = await known.load()
  const peer = await open(surroundings)
  await Promise.all([database.reset(), servers.reset()])
  await peer.install()
  let relay: ForkedRelay | undefined
  if (peer.startRelay) relay = await forkRelay({ peer: peerName, surroundings })
  await untilQuiet(sizes.patienceMs)
  const setting = createSetting({
    peerName,
    side,
    peer,
    surroundings,
    database,
    redis,
    relay,
    sizes: fitting(sizes, known.fewerJobs),
    profile: profile && profileStretch(profile, { relay, redis: redis?.client }),
    profileWorkersInto: profile?.who === 'worker' ? profile.folder : undefined,
  })
  try {
    return await scenario.measure(setting)
  } finally {
    setting.killWorkers()
    relay?.kill()
  }
}

function fitting(sizes: Sizes, most = Number.POSITIVE_INFINITY): Sizes {
  return { ...sizes, drainJobs: Math.min(sizes.drainJobs, most), wholeJobs: Math.min(sizes.wholeJobs, most) }
}
