/** Owns which peers there are. Loaded on demand: a process holds the code of the one it measures. */
import type { Persistence } from '../stores/redis.ts'
import type { OpenPeer } from './peer.ts'
import type { Tuning } from './tuning.ts'

export interface KnownPeer {
  /** What it is and how it is set, in a few words. */
  readonly title: string
  /** What an answer to its `add` promises. */
  readonly durability: string
  /** The npm package, for its version. */
  readonly package?: string
  /** All but BullMQ on Redis keep their jobs there. */
  readonly isInPostgres?: boolean
  /** The Redis it needs, where it does. */
  readonly redis?: Persistence
  /** A longshore: it is compared with all others, and must not fail. */
  readonly isOurs?: boolean
  /** It takes too long for as many jobs as the others: drains, and the whole way, get so many. The rate is what counts. */
  readonly fewerJobs?: number
  /** It enqueues by the very code of this peer, so it is not measured where only producers are. */
  readonly producerOf?: string
  load(): Promise<OpenPeer>
  /** Where there is something to tune. */
  tuning?(): Promise<Tuning>
}

/** The adapter is that of the build: two checkouts may differ in their public API. */
const openBuiltLongshore: OpenPeer = async surroundings => {
  const adapter: typeof import('./longshore.ts') = await import(
    `${surroundings.longshore}/adapter/longshore.js`
  )
  return adapter.openLongshore(surroundings)
}

const IN_POSTGRES = 'committed in Postgres (fsync)'
const loadBullmq = async () => (await import('./bullmq.ts')).openBullmq
const tuningOfBullmq = async () => (await import('./bullmq.ts')).BULLMQ

export const knownPeers: Readonly<Record<string, KnownPeer>> = {
  longshore: {
    title: 'longshore through Redis, default settings: a relay beside it, producers hint',
    durability: IN_POSTGRES,
    isInPostgres: true,
    redis: 'memory',
    isOurs: true,
    load: async () => openBuiltLongshore,
  },
  'longshore-direct': {
    title: 'longshore, direct mode, default settings',
    durability: IN_POSTGRES,
    isInPostgres: true,
    isOurs: true,
    load: async () => openBuiltLongshore,
  },
  'graphile-worker': {
    title: 'graphile-worker 0.18 batched: 100 jobs at once, local queue of 2,000, completions every 20 ms',
    durability: IN_POSTGRES,
    package: 'graphile-worker',
    isInPostgres: true,
    load: async () => (await import('./graphile-worker.ts')).openGraphileBatched,
    tuning: async () => (await import('./graphile-worker.ts')).GRAPHILE_BATCHED,
  },
  'graphile-default': {
    title:
      'graphile-worker 0.18 as it comes, neither local queue nor batches: 100 jobs at once, 10 connections',
    durability: IN_POSTGRES,
    package: 'graphile-worker',
    isInPostgres: true,
    fewerJobs: 10_000,
    producerOf: 'graphile-worker',
    load: async () => (await import('./graphile-worker.ts')).openGraphileDefault,
    tuning: async () => (await import('./graphile-worker.ts')).GRAPHILE_DEFAULT,
  },
  'pg-boss': {
    title:
      'pg-boss 12.38: batches of 2,000, 4 at once, fetched on while they are full, otherwise every 0.5 s; paced jobs: 1 at once, woken by notify',
    durability: IN_POSTGRES,
    package: 'pg-boss',
    isInPostgres: true,
    load: async () => (await import('./pg-boss.ts')).openPgBoss,
    tuning: async () => (await import('./pg-boss.ts')).PG_BOSS,
  },
  'bullmq-postgres': {
    title:
      'BullMQ 6.7 on its own Postgres backend: 100 jobs at once, 20 connections; light load: default worker',
    durability: IN_POSTGRES,
    package: 'bullmq',
    isInPostgres: true,
    fewerJobs: 10_000,
    load: async () => (await import('./bullmq-postgres.ts')).openBullmqPostgres,
    tuning: async () => (await import('./bullmq-postgres.ts')).BULLMQ_POSTGRES,
  },
  bullmq: {
    title: 'BullMQ 6.7 on a Redis that keeps nothing on disk: 50 jobs at once; light load: default worker',
    durability: 'none: in memory, gone with the Redis process',
    package: 'bullmq',
    redis: 'memory',
    fewerJobs: 50_000,
    load: loadBullmq,
    tuning: tuningOfBullmq,
  },
  'bullmq-aof': {
    title: 'BullMQ 6.7 on a Redis with appendfsync everysec, set as bullmq',
    durability: 'append-only file, up to a second of answered jobs is lost with the machine',
    package: 'bullmq',
    redis: 'everysec',
    fewerJobs: 50_000,
    load: loadBullmq,
    tuning: tuningOfBullmq,
  },
  'bullmq-aof-always': {
    title: 'BullMQ 6.7 on a Redis with appendfsync always, set as bullmq',
    durability: 'append-only file, fsync before each answer',
    package: 'bullmq',
    redis: 'always',
    fewerJobs: 50_000,
    load: loadBullmq,
    tuning: tuningOfBullmq,
  },
  floor: {
    title:
      'the floor, a yardstick and no queue: insert, push to Redis, pop, claim, done, all in batches; no retries, leases or recovery',
    durability: IN_POSTGRES,
    redis: 'memory',
    load: async () => (await import('./floor.ts')).openFloor,
  },
}

/** Whose variants are compared in `--set itself`, and who is profiled and explained. */
export const OURS = 'longshore-direct'

export const isOurs = (name: string): boolean => knownPeers[name]?.isOurs ?? false

/** The queues of others that promise what longshore promises. */
export const POSTGRES_PEERS: readonly string[] = Object.entries(knownPeers).flatMap(([name, peer]) =>
  peer.isInPostgres && !peer.isOurs ? [name] : [],
)

export function knownPeer(name: string): KnownPeer {
  const peer = knownPeers[name]
  if (!peer) throw new Error(`no peer "${name}": choose from ${Object.keys(knownPeers).join(', ')}`)
  return peer
}
