/** Owns which peers there are. Loaded on demand: a process holds the code of the one it measures. */
import type { OpenPeer, StoreName } from './peer.ts'

export interface KnownPeer {
  /** What it is and how it is set, in a few words. */
  readonly title: string
  readonly needs: readonly StoreName[]
  /** A longshore: it is compared with all others, and must not fail. */
  readonly isOurs?: boolean
  load(): Promise<OpenPeer>
}

export const knownPeers: Readonly<Record<string, KnownPeer>> = {
  longshore: {
    title: 'longshore through Redis, default settings: a relay beside it, producers hint',
    needs: ['postgres', 'redis'],
    isOurs: true,
    load: async () => (await import('./longshore.ts')).openLongshore,
  },
  'longshore-direct': {
    title: 'longshore, direct mode, default settings',
    needs: ['postgres'],
    isOurs: true,
    load: async () => (await import('./longshore.ts')).openLongshore,
  },
  'graphile-worker': {
    title: 'graphile-worker 0.18 batched: 100 jobs at once, local queue of 2,000, completions every 20 ms',
    needs: ['postgres'],
    load: async () => (await import('./graphile-worker.ts')).openGraphileWorker,
  },
  'pg-boss': {
    title:
      'pg-boss 12.38: batches of 2,000, 4 at once, fetched on while they are full, otherwise every 0.5 s; paced jobs: 1 at once, woken by notify',
    needs: ['postgres'],
    load: async () => (await import('./pg-boss.ts')).openPgBoss,
  },
  bullmq: {
    title:
      'BullMQ 6.7 on a Redis that keeps nothing on disk, so its jobs are not durable: 50 jobs at once; light load: default worker',
    needs: ['redis'],
    load: async () => (await import('./bullmq.ts')).openBullmq,
  },
  floor: {
    title:
      'the floor, a yardstick and no queue: insert, push to Redis, pop, claim, done, all in batches; no retries, leases or recovery',
    needs: ['postgres', 'redis'],
    load: async () => (await import('./floor.ts')).openFloor,
  },
}

/** Whose variants are compared in `--set itself`, and who is profiled and explained. */
export const OURS = 'longshore-direct'

export const isOurs = (name: string): boolean => knownPeers[name]?.isOurs ?? false

export function knownPeer(name: string): KnownPeer {
  const peer = knownPeers[name]
  if (!peer) throw new Error(`no peer "${name}": choose from ${Object.keys(knownPeers).join(', ')}`)
  return peer
}
