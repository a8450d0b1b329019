/** Owns the command line of the bench. */
import { parseArgs } from 'node:util'
import { knownPeer, knownPeers, OURS } from './peers/known-peers.ts'
import type { Scenario } from './scenario.ts'
import { scenarioSets, scenarios } from './scenarios/all.ts'
import { FULL, QUICK, type Sizes } from './sizes.ts'

export interface Flags {
  readonly sizes: Sizes
  readonly scenarios: readonly Scenario[]
  readonly peers: readonly string[]
  readonly isJson: boolean
  readonly isSaved: boolean
  /** Explain the hot functions instead of measuring. */
  readonly isPlans: boolean
  readonly profile: 'worker' | 'producer' | undefined
  /** Names what was measured: for the file of `--save`. */
  readonly setName: string
}

export const USAGE = `npm run bench -- [flags]

  --quick              smaller numbers, one round: about three minutes with all peers
  --rounds <n>         rounds over all scenarios and peers (3)
  --set <name>         all (longshore beside its peers, the default) | itself (longshore with a feature beside longshore
                       without) | growth (longshore with very many jobs, workers or keys beside longshore with few)
  --only <ids>         ${scenarios.map(scenario => scenario.id).join(',')}
  --peers <names>      ${Object.keys(knownPeers).join(',')} (all of them)
  --json               print the results as JSON
  --save               write them to bench/results/
  --profile <who>      worker | producer: the functions its time goes to, and the statements Postgres's goes to
  --plans              write the plans of the hot functions to bench/plans/ instead
  --help

DATABASE_URL measures on that server, in a database of its own; otherwise one is started. A Redis is
always one of our own that keeps nothing on disk, started when a chosen peer needs it.`

/** Undefined when only help was asked for. */
export function readFlags(args: string[]): Flags | undefined {
  const { values } = parseArgs({
    args,
    options: {
      quick: { type: 'boolean', default: false },
      rounds: { type: 'string' },
      set: { type: 'string', default: 'all' },
      only: { type: 'string' },
      peers: { type: 'string' },
      json: { type: 'boolean', default: false },
      save: { type: 'boolean', default: false },
      profile: { type: 'string' },
      plans: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  })
  if (values.help) return undefined
  const { profile } = values
  if (profile !== undefined && profile !== 'worker' && profile !== 'producer') {
    throw new Error(`--profile is worker or producer, not "${profile}"`)
  }
  if (!isSet(values.set))
    throw new Error(`--set is ${Object.keys(scenarioSets).join(' or ')}, not "${values.set}"`)
  const usual = values.quick ? QUICK : FULL
  const rounds = values.rounds === undefined ? (profile ? 1 : usual.rounds) : Number(values.rounds)
  if (!Number.isInteger(rounds) || rounds < 1) throw new Error('--rounds is a whole number from 1 on')
  const only = values.only ?? (profile && { worker: 'drain1', producer: 'enqueue32' }[profile])
  const peers = values.peers?.split(',') ?? (profile ? [OURS] : Object.keys(knownPeers))
  for (const name of peers) knownPeer(name)
  const chosen = only === undefined ? scenarioSets[values.set] : only.split(',').map(findScenario)
  return {
    sizes: { ...usual, rounds },
    scenarios: chosen,
    peers,
    isJson: values.json,
    isSaved: values.save,
    isPlans: values.plans,
    profile,
    setName: [
      only === undefined ? values.set : chosen.map(scenario => scenario.id).join('+'),
      ...(values.quick ? ['quick'] : []),
    ].join('-'),
  }
}

const isSet = (name: string): name is keyof typeof scenarioSets => name in scenarioSets

function findScenario(id: string): Scenario {
  const found = scenarios.find(scenario => scenario.id === id)
  if (!found) throw new Error(`no scenario "${id}": choose from ${scenarios.map(s => s.id).join(', ')}`)
  return found
}
