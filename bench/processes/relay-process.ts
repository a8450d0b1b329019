/**
 * A relay process: `relay-process.ts <RelayOrder as JSON>`. Runs what a peer wants beside its producers and workers,
 * until it is killed. Answers each message, and says one word when it runs.
 */
import { knownPeer } from '../peers/known-peers.ts'
import type { Surroundings } from '../peers/peer.ts'
import { type RecordedProfile, startProfile } from '../profile/record-profile.ts'

export interface RelayOrder {
  peer: string
  surroundings: Surroundings
}

export type RelayMessage =
  | { kind: 'start-profile' }
  | { kind: 'stop-profile'; file: string }
  | { kind: 'metrics' }

// Without its parent it has nothing to do.
process.once('disconnect', () => process.exit(1))

const order = JSON.parse(process.argv[2] ?? '') as RelayOrder
const open = await knownPeer(order.peer).load()
const peer = await open(order.surroundings)
const relay = await peer.startRelay?.()

let profile: RecordedProfile | undefined
process.on('message', async (message: RelayMessage) => {
  switch (message.kind) {
    case 'start-profile':
      profile = await startProfile()
      return process.send?.('done')
    case 'stop-profile':
      await profile?.stop(message.file)
      return process.send?.('done')
    case 'metrics':
      return process.send?.(relay?.metrics?.() ?? {})
  }
})
process.send?.('ready')
