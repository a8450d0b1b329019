/** Owns one measurement's surroundings: its stores, its peer, and the worker processes that it forks. */

import type { Peer, Surroundings } from '../peers/peer.ts'
import type { ForkedRelay } from '../processes/fork-relay.ts'
import { type ForkedWorker, forkWorker } from '../processes/fork-worker.ts'
import type { Crowd, WorkerOrder, WorkerReport } from '../processes/worker-process.ts'
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
  /** A process with workers of the peer, whose handlers only count. */
  forkWorker(total: number, measured: number, crowd?: Crowd): ForkedWorker<WorkerReport>
  /** Another program of the bench, see `forkWorker` of processes/. */
  fork<Report>(program: string, order: object): ForkedWorker<Report>
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
  const children: ForkedWorker<unknown>[] = []
  const fork = <Report>(program: string, order: object): ForkedWorker<Report> => {
    const child = forkWorker<Report>(program, { ...order, surroundings })
    children.push(child)
    return child
  }
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
    fork,
    forkWorker(total, measured, crowd) {
      const order: Omit<WorkerOrder, 'surroundings'> = {
        peer: peerName,
        number: children.length,
        total,
        measured,
        ...crowd,
        profileInto: profileWorkersInto,
      }
      return fork('processes/worker-process', order)
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
      for (const child of children) child.kill()
    },
  }
}
