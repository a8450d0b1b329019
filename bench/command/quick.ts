/** Owns what `--quick` leaves out of the default set, to be done in about a minute. */
import { knownPeers } from '../peers/known-peers.ts'
import { scenarioSets } from '../scenarios/sets.ts'

export const QUICK_SCENARIOS = ['enqueue32', 'bulk4', 'drain1', 'whole', 'latency']
export const QUICK_PEERS = ['longshore', 'longshore-direct', 'graphile-worker', 'bullmq', 'floor']

const without = (all: readonly string[], some: readonly string[]) =>
  all.filter(one => !some.includes(one)).join(', ')

export const leftOutScenarios = (): string =>
  `scenarios ${without(
    scenarioSets.all.map(({ id }) => id),
    QUICK_SCENARIOS,
  )}`
export const leftOutPeers = (): string => `peers ${without(Object.keys(knownPeers), QUICK_PEERS)}`
