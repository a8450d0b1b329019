/** Owns who is compared in a scenario: the peers, or the scenario's own variants of longshore. */
import { OURS, REFERENCE } from './peers/known-peers.ts'
import type { Scenario } from './scenario.ts'

export const sidesOf = (scenario: Scenario, peers: readonly string[]): readonly string[] =>
  scenario.variants?.map(variant => variant.name) ?? peers

/** Which sides have a ratio, and against whom. */
export function comparedIn(
  scenario: Scenario,
  peers: readonly string[],
): { compared: readonly string[]; reference: string } {
  if (!scenario.variants) {
    const isComplete = peers.includes(OURS) && peers.includes(REFERENCE)
    return { compared: isComplete ? [OURS] : [], reference: REFERENCE }
  }
  const sides = sidesOf(scenario, peers)
  return { compared: sides.slice(0, -1), reference: sides.at(-1) as string }
}
