/** Owns who is compared in a scenario: the peers, or the scenario's own variants of longshore. */
import { isOurs, knownPeers, OURS } from '../peers/known-peers.ts'
import type { Scenario } from '../scenarios/scenario.ts'

export const sidesOf = (scenario: Scenario, peers: readonly string[]): readonly string[] =>
  scenario.variants?.map(variant => variant.name) ?? peers.filter(peer => !standsFor(scenario, peer, peers))

/** Another side's figure is this peer's too: they share a producer, and only producers are measured. */
export function standsFor(scenario: Scenario, peer: string, peers: readonly string[]): string | undefined {
  const other = scenario.isOfProducers ? knownPeers[peer]?.producerOf : undefined
  return other !== undefined && peers.includes(other) ? other : undefined
}

/** Whose code is measured on a side. */
export const peerOf = (scenario: Scenario, side: string): string =>
  scenario.variants ? (scenario.variants.find(({ name }) => name === side)?.peer ?? OURS) : side

/** Everyone who takes part in these scenarios, the peers in their own order. */
export const peersOf = (scenarios: readonly Scenario[], peers: readonly string[]): readonly string[] => [
  ...new Set([
    ...(scenarios.every(({ variants }) => variants) ? [] : peers),
    ...scenarios.flatMap(({ variants = [] }) => variants.map(({ peer = OURS }) => peer)),
  ]),
]

/** A ratio: of whom, and to whom. */
export interface Pair {
  readonly side: string
  readonly to: string
}

/** Each longshore is compared with each other peer, and variants with the last one of them. */
export function pairsIn(scenario: Scenario, peers: readonly string[]): readonly Pair[] {
  if (!scenario.variants) return pairsOfPeers(peers)
  const sides = sidesOf(scenario, peers)
  return sides.slice(0, -1).map(side => ({ side, to: sides.at(-1) as string }))
}

const pairsOfPeers = (peers: readonly string[]): readonly Pair[] =>
  peers
    .filter(isOurs)
    .flatMap((side, i, ours) =>
      peers.filter(to => !ours.slice(0, i + 1).includes(to)).map(to => ({ side, to })),
    )
