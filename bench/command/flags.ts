/** Owns the command line of the bench. */
import { parseArgs } from 'node:util'
import { FULL, QUICK, type Sizes } from '../measure/sizes.ts'
import { isOurs, knownPeer, knownPeers, OURS } from '../peers/known-peers.ts'
import type { Profiled } from '../profile/stretch-profile.ts'
import type { Scenario } from '../scenarios/scenario.ts'
import { roundsOf, SETS, scenarioSets, scenarios } from '../scenarios/sets.ts'
import { leftOutPeers, leftOutScenarios, QUICK_PEERS, QUICK_SCENARIOS } from './quick.ts'

export interface Flags {
  readonly sizes: Sizes
  readonly scenarios: readonly Scenario[]
  readonly peers: readonly string[]
  /** What `--quick` does without. */
  readonly leftOut: readonly string[]
  readonly isJson: boolean
  readonly isSaved: boolean
  /** Explain the hot functions instead of measuring. */
  readonly isPlans: boolean
  /** Write the figures of README and docs anew instead of measuring. */
  readonly isDocs: boolean
  /** Look for this peer's best settings instead. */
  readonly sweep: string | undefined
  readonly profile: Profiled | undefined
  /** Another checkout, measured in pairs with this one instead. */
  readonly beside: { readonly checkout: string; readonly pairs: number } | undefined
  /** Names what was measured, and the files it is written to. */
  readonly name: string
}

const setsInWords = Object.entries(SETS)
  .map(
    ([set, { says, rounds }]) =>
      `${' '.repeat(23)}${set}: ${says} (${rounds} ${rounds === 1 ? 'round' : 'rounds'})`,
  )
  .join('\n')

export const USAGE = `npm run bench -- [flags]

  --quick              smaller numbers, one round, fewer scenarios and peers: a good minute
  --rounds <n>         rounds over all scenarios and peers
  --set <name>         a set of scenarios:
${setsInWords}
  --only <ids>         ${scenarios.map(scenario => scenario.id).join(',')}
  --peers <names>      ${Object.keys(knownPeers).join(',')} (all of them)
  --json               print the results as JSON
  --no-save            do not write record, report and charts to bench/results/
  --sweep <peer>       look for the best settings of this peer instead
  --profile <who>      worker | producer | relay: the functions its time goes to, the statements Postgres's goes to, the commands
                       Redis's goes to
  --beside <path>      measure another checkout and this one in turn instead (default: drain1 and drain2 in direct mode)
  --pairs <n>          so many times (10)
  --plans              write the plans of the hot functions to bench/plans/ instead
  --docs               write the figures of README and docs anew from bench/results/ instead; a whole set does so at its end
  --help

DATABASE_URL measures on that server, in a database of its own; otherwise one is started. A Redis is always
one of our own, one for each way of keeping things on disk that a chosen peer needs.`

/** What shows most of it. */
const PROFILES = {
  worker: { scenario: 'drain1', peer: OURS },
  producer: { scenario: 'enqueue32', peer: OURS },
  relay: { scenario: 'whole', peer: 'longshore' },
} as const satisfies Record<Profiled, { scenario: string; peer: string }>

/** What a change of the hot path shows in. */
const BESIDE_SCENARIOS = ['drain1', 'drain2']

/** Undefined when only help was asked for. */
export function readFlags(args: string[]): Flags | undefined {
  const { values } = parseArgs({
    args,
    allowNegative: true,
    options: {
      quick: { type: 'boolean', default: false },
      rounds: { type: 'string' },
      set: { type: 'string', default: 'all' },
      only: { type: 'string' },
      peers: { type: 'string' },
      json: { type: 'boolean', default: false },
      save: { type: 'boolean', default: true },
      sweep: { type: 'string' },
      profile: { type: 'string' },
      beside: { type: 'string' },
      pairs: { type: 'string', default: '10' },
      plans: { type: 'boolean', default: false },
      docs: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  })
  if (values.help) return undefined
  const { quick, sweep, set } = values
  if (!isSet(set)) throw new Error(`--set is ${Object.keys(scenarioSets).join(' or ')}, not "${set}"`)
  const profile = values.profile === undefined ? undefined : readProfiled(values.profile)
  const usual = quick ? QUICK : FULL
  const isQuickSet = quick && set === 'all'
  const beside = values.beside === undefined ? undefined : readBeside(values.beside, values.pairs)
  const only =
    values.only?.split(',') ?? (profile && [PROFILES[profile].scenario]) ?? (beside && BESIDE_SCENARIOS)
  const ids = only ?? (isQuickSet ? QUICK_SCENARIOS : scenarioSets[set].map(({ id }) => id))
  const chosen = ids.map(findScenario)
  const usualRounds = quick ? 1 : Math.min(...chosen.map(roundsOf))
  const rounds = values.rounds === undefined ? (profile ? 1 : usualRounds) : Number(values.rounds)
  if (!Number.isInteger(rounds) || rounds < 1) throw new Error('--rounds is a whole number from 1 on')
  const some = sweep === undefined ? values.peers?.split(',') : [sweep]
  const asked = some ?? (profile && [PROFILES[profile].peer]) ?? (beside && [OURS])
  const peers = asked ?? (isQuickSet ? QUICK_PEERS : Object.keys(knownPeers))
  for (const name of peers) knownPeer(name)
  if (beside && !peers.every(isOurs))
    throw new Error('--beside compares builds of longshore, not other peers')
  return {
    sizes: { ...usual, rounds },
    scenarios: chosen,
    peers,
    leftOut: isQuickSet
      ? [
          ...(only ? [] : [leftOutScenarios()]),
          ...(asked || chosen.every(({ variants }) => variants) ? [] : [leftOutPeers()]),
        ]
      : [],
    isJson: values.json,
    isSaved: values.save && profile === undefined,
    isPlans: values.plans,
    isDocs: values.docs,
    sweep,
    profile,
    beside,
    name: nameOf({
      quick,
      set,
      only,
      isBeside: beside !== undefined,
      peers: asked,
      rounds: rounds < usualRounds ? rounds : undefined,
    }),
  }
}

/** A run of less than the whole set does not overwrite the whole set's files. */
function nameOf(given: {
  quick: boolean
  set: string
  only: readonly string[] | undefined
  isBeside: boolean
  peers: readonly string[] | undefined
  rounds: number | undefined
}): string {
  const { quick, set, only, isBeside, peers, rounds } = given
  const isPart = only ?? peers ?? rounds
  return [
    ...(quick ? ['quick'] : []),
    ...(isPart ? ['only'] : []),
    ...(isBeside ? ['beside'] : []),
    only?.join('+') ?? set,
    ...(peers ? ['of', peers.join('+')] : []),
    ...(rounds ? [`rounds-${rounds}`] : []),
  ].join('-')
}

const isSet = (name: string): name is keyof typeof scenarioSets => name in scenarioSets

function readProfiled(who: string): Profiled {
  if (who in PROFILES) return who as Profiled
  throw new Error(`--profile is ${Object.keys(PROFILES).join(', ')}, not "${who}"`)
}

function readBeside(checkout: string, pairs: string): NonNullable<Flags['beside']> {
  const count = Number(pairs)
  if (!Number.isInteger(count) || count < 1) throw new Error('--pairs is a whole number from 1 on')
  return { checkout, pairs: count }
}

function findScenario(id: string): Scenario {
  const found = scenarios.find(scenario => scenario.id === id)
  if (!found) throw new Error(`no scenario "${id}": choose from ${scenarios.map(s => s.id).join(', ')}`)
  return found
}
