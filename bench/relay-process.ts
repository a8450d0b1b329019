/**
 * A relay process: `relay-process.ts <RelayOrder as JSON>`. Runs what a peer wants beside its producers and workers,
 * until it is killed. Asked by any message, it tells its metrics.
 */
import { knownPeer } from './peers/known-peers.ts'
import type { Surroundings } from './peers/peer.ts'

export interface RelayOrder {
  peer: string
  surroundings: Surroundings
}

// Without its parent it has nothing to do.
process.once('disconnect', () => process.exit(1))

const order = JSON.parse(process.argv[2] ?? '') as RelayOrder
const open = await knownPeer(order.peer).load()
const peer = await open(order.surroundings)
const relay = await peer.startRelay?.()
process.on('message', () => process.send?.(relay?.metrics?.()))
process.send?.('ready')
