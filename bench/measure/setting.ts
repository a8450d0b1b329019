/** Owns one measurement's surroundings: its stores, its peer, and the worker processes that it forks. */

import type { Peer, Surroundings } from '../peers/peer.ts'
import type { ForkedRelay } from '../processes/fork-relay.ts'
import { type ForkedWorker, forkWorker } from '../processes/fork-worker.ts'
import type { Crowd } from '../processes/worker-process.ts'
import type { StretchProfile } from '../profile/stretch-profile.ts'
import type { Database } from '../stores/database.ts'
import type { RedisUnderTest } from '../stores/redis.ts'
import type { WatchedServers } from './cpu.ts'
import type { Sizes } from './sizes.ts'

export interface Setting {
  readonly peer: Peer
  /** Where the stores and the built longshore are. */
  readonly surroundings: Surroundings
  readonly redis: RedisUnderTest | undefined
  readonly relay: ForkedRelay | undefined
  /** The name of the variant, or of the peer. */
  readonly side: string
  readonly database: Database
  readonly sizes: Sizes
  /** For CPU accounting. */
  readonly servers: WatchedServers
  /** Taken over the timed stretch. */
  readonly profile: StretchProfile | undefined
  forkWorker(total: number, measured: number, crowd?: Crowd): ForkedWorker
  countUnfinished(): Promise<number>
}

export function createSetting(given: {
  peerName: string
  side: string
  peer: Peer
  surroundings: Surroundings
  database: Database
  redis: RedisUnderTest | undefined
  relay: ForkedRelay | undefined
  sizes: Sizes
  profile: StretchProfile | undefined
  /** Folder for the CPU profiles of workers. */
  profileWorkersInto: string | undefined
}): Setting & { killWorkers(): void } {
  const { peerName, side, peer, surroundings, database, redis, relay, sizes, profile, profileWorkersInto } =
    given
  const workers: ForkedWorker[] = []
  return {
    peer,
    surroundings,
    redis,
    relay,
    side,
    database,
    sizes,
    servers: { postmaster: database.postmaster, redis: redis?.pid, relay: relay?.pid },
    profile,
    forkWorker(total, measured, crowd) {
      const worker = forkWorker({
        peer: peerName,
        surroundings,
        number: workers.length,
        total,
        measured,
        ...crowd,
        profileInto: profileWorkersInto,
      })
      workers.push(worker)
      return worker
    },
    async countUnfinished() {
      const { countUnfinished } = peer
      if (typeof countUnfinished === 'string') {
        const [row] = await database.query(countUnfinished)
        return row?.['n'] as number
      }
      if (!redis) throw new Error(`${peerName} has no Redis to count jobs in`)
      return countUnfinished(redis.client)
    },
    killWorkers() {
      for (const worker of workers) worker.kill()
    },
  }
}
