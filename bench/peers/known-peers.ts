/** Owns which peers there are. Loaded on demand: a process holds the code of the one it measures. */
import type { OpenPeer } from './peer.ts'

export interface KnownPeer {
  /** What it is and how it is set, in a few words. */
  readonly title: string
  load(): Promise<OpenPeer>
}

export const knownPeers: Readonly<Record<string, KnownPeer>> = {
  longshore: {
    title: 'longshore, direct mode, default settings',
    load: async () => (await import('./longshore-direct.ts')).openLongshoreDirect,
  },
  'graphile-worker': {
    title: 'graphile-worker 0.18 batched: 100 jobs at once, local queue of 2,000, completions every 20 ms',
    load: async () => (await import('./graphile-worker.ts')).openGraphileWorker,
  },
}

export const OURS = 'longshore'
/** The peer that ratios are against. */
export const REFERENCE = 'graphile-worker'

export function knownPeer(name: string): KnownPeer {
  const peer = knownPeers[name]
  if (!peer) throw new Error(`no peer "${name}": choose from ${Object.keys(knownPeers).join(', ')}`)
  return peer
}
