/** Owns the lists of scenarios, in the order they run. */

import { concurrencyBaseline } from './beside-itself/concurrency-baseline.ts'
import { concurrencyEnabled } from './beside-itself/concurrency-enabled.ts'
import { concurrencyHigh } from './beside-itself/concurrency-high.ts'
import { concurrencyMixed } from './beside-itself/concurrency-mixed.ts'
import { constraints } from './beside-itself/constraints.ts'
import { limitedBacklog } from './beside-itself/limited-backlog.ts'
import { slotOperations } from './beside-itself/slot-operations.ts'
import { unmatchableHead } from './beside-itself/unmatchable-head.ts'
import { bulk4 } from './beside-peers/bulk-enqueues.ts'
import { drain1 } from './beside-peers/drain-one-worker.ts'
import { drain2 } from './beside-peers/drain-two-workers.ts'
import { latency } from './beside-peers/light-load.ts'
import { enqueue32, enqueue256 } from './beside-peers/single-enqueues.ts'
import { stream } from './beside-peers/steady-stream.ts'
import { whole } from './beside-peers/whole-way.ts'
import { backlog } from './growth/backlog.ts'
import { graphs } from './growth/graphs.ts'
import { history } from './growth/history.ts'
import { idleWorkers } from './growth/idle-workers.ts'
import { limitKeys } from './growth/limit-keys.ts'
import { openTransaction } from './growth/open-transaction.ts'
import { rebuild } from './growth/rebuild.ts'
import { workersBalanced, workersFanout } from './growth/workers.ts'
import type { Scenario } from './scenario.ts'

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
