/** Owns what a scenario is: one question, asked of one peer at a time in stores of its own. */
import type { Cores, WatchedServers } from './cpu.ts'
import type { Database } from './database.ts'
import type { ForkedRelay } from './fork-relay.ts'
import { type ForkedWorker, forkWorker } from './fork-worker.ts'
import type { Load, Peer, Surroundings } from './peers/peer.ts'
import type { StretchProfile } from './profile/stretch-profile.ts'
import type { RedisUnderTest } from './redis.ts'
import type { Sizes } from './sizes.ts'
import type { Crowd } from './worker-process.ts'
import type { Variant } from './workload.ts'
import type { Writes } from './writes.ts'

export interface Figure {
  readonly name: string
  readonly unit: 'jobs/s' | 'ms' | 'µs' | 'jobs' | '%' | '/s' | 'MB' | 'cores' | '×' | 'bytes' | '/1,000 jobs'
  /** Which way is good. Figures without it are told, not compared. */
  readonly better?: 'higher' | 'lower'
  /** Gets a chart. Default: only the scenario's first. */
  readonly isHeadline?: boolean
}

export interface Measurement {
  /** Jobs that were counted. */
  jobs: number
  /** By the names of the scenario's figures; not every variant has each. */
  figures: Record<string, number>
  /** Over the timed stretch, whose length is `seconds`. */
  cores: Cores
  seconds: number
  /** Over the same stretch. Records from before it was measured lack it. */
  writes?: Writes
}

export interface Scenario {
  /** For `--only`. */
  readonly id: string
  readonly question: string
  readonly figures: readonly Figure[]
  /** What the peers are set for. Default: a backlog. */
  readonly load?: Load
  /** No worker takes part. */
  readonly isOfProducers?: boolean
  /** Longshore beside itself, in place of peers. Ratios are against the last one. */
  readonly variants?: readonly Variant[]
  /** The peer is installed in empty stores. Throws when a job is lost or runs twice. */
  measure(setting: Setting): Promise<Measurement>
}

/** One measurement's surroundings. */
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
