/** Owns the lists of scenarios, in the order they run. */
import type { Scenario } from '../scenario.ts'
import { backlog } from './backlog.ts'
import { bulk4 } from './bulk-enqueues.ts'
import { concurrencyBaseline } from './concurrency-baseline.ts'
import { concurrencyEnabled } from './concurrency-enabled.ts'
import { concurrencyHigh } from './concurrency-high.ts'
import { concurrencyMixed } from './concurrency-mixed.ts'
import { constraints } from './constraints.ts'
import { drain1 } from './drain-one-worker.ts'
import { drain2 } from './drain-two-workers.ts'
import { graphs } from './graphs.ts'
import { history } from './history.ts'
import { idleWorkers } from './idle-workers.ts'
import { latency } from './light-load.ts'
import { limitKeys } from './limit-keys.ts'
import { limitedBacklog } from './limited-backlog.ts'
import { openTransaction } from './open-transaction.ts'
import { rebuild } from './rebuild.ts'
import { enqueue32, enqueue256 } from './single-enqueues.ts'
import { slotOperations } from './slot-operations.ts'
import { stream } from './steady-stream.ts'
import { unmatchableHead } from './unmatchable-head.ts'
import { whole } from './whole-way.ts'
import { workersBalanced, workersFanout } from './workers.ts'

/** `all` is longshore beside its peers, `itself` longshore with a feature beside longshore without,
 * `growth` longshore with much beside longshore with little. */
export const scenarioSets = {
  all: [enqueue32, enqueue256, bulk4, drain1, drain2, whole, latency, stream],
  itself: [
    concurrencyBaseline,
    concurrencyEnabled,
    concurrencyMixed,
    concurrencyHigh,
    slotOperations,
    constraints,
    unmatchableHead,
    limitedBacklog,
  ],
  growth: [
    graphs,
    idleWorkers,
    backlog,
    history,
    workersFanout,
    workersBalanced,
    limitKeys,
    openTransaction,
    rebuild,
  ],
} as const satisfies Record<string, readonly Scenario[]>

/** At most so many rounds, unless asked for more: variants of one build differ less from round to round than peers do, and what grows
 * takes long to fill. */
const MOST_ROUNDS = { all: 3, itself: 2, growth: 1 } as const satisfies Record<
  keyof typeof scenarioSets,
  number
>

/** Of the set that a scenario is in. */
export function mostRoundsOf(scenario: Scenario): number {
  const sets = Object.keys(scenarioSets) as (keyof typeof scenarioSets)[]
  const own = sets.find(set => (scenarioSets[set] as readonly Scenario[]).includes(scenario))
  return MOST_ROUNDS[own ?? 'all']
}

export const scenarios: readonly Scenario[] = Object.values(scenarioSets).flat()
