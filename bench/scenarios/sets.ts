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
import { fleetDrain } from './fleet/fleet-drain.ts'
import { footprint } from './fleet/footprint.ts'
import { heldSnapshot } from './fleet/held-snapshot.ts'
import { liveness } from './fleet/liveness.ts'
import { tenTasks } from './fleet/ten-tasks.ts'
import { agedDirect, agedThroughRedis } from './growth/aged.ts'
import { backlog } from './growth/backlog.ts'
import { graphs } from './growth/graphs.ts'
import { history } from './growth/history.ts'
import { idleWorkers } from './growth/idle-workers.ts'
import { limitKeys } from './growth/limit-keys.ts'
import { oldDay } from './growth/old-day.ts'
import { openTransaction } from './growth/open-transaction.ts'
import { rebuild } from './growth/rebuild.ts'
import { workersBalanced, workersFanout } from './growth/workers.ts'
import type { Scenario } from './scenario.ts'

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
    oldDay,
    workersFanout,
    workersBalanced,
    limitKeys,
    openTransaction,
    rebuild,
  ],
  aged: [agedDirect, agedThroughRedis],
  fleet: [fleetDrain],
  tasks: [tenTasks],
  snapshot: [heldSnapshot],
  footprint: [footprint],
  liveness: [liveness],
} as const satisfies Record<string, readonly Scenario[]>

/**
 * What each set asks, and in how many rounds unless more or fewer are asked for: variants of one build differ less from round to
 * round than peers do, what grows takes long to fill, and a difference of a few percent needs many rounds to be seen.
 */
export const SETS: Readonly<Record<keyof typeof scenarioSets, { says: string; rounds: number }>> = {
  all: { says: 'longshore beside its peers, the default', rounds: 3 },
  itself: { says: 'longshore with a feature beside longshore without', rounds: 2 },
  growth: { says: 'longshore with very many jobs, workers or keys beside longshore with few', rounds: 1 },
  aged: {
    says: 'a deployment with unused keys, queue names and history behind it beside a fresh one',
    rounds: 3,
  },
  fleet: { says: 'a drain by 1 to 16 warm worker processes, and by 50 and 200 workers in one', rounds: 3 },
  tasks: { says: 'a worker with ten tasks beside one with a single task', rounds: 10 },
  snapshot: { says: 'claims beside a snapshot that is held open for three minutes', rounds: 1 },
  footprint: { says: 'connections and memory of a worker process, WAL of a plain job', rounds: 3 },
  liveness: {
    says: 'the longest wait of a ready job beside an idle worker, in fleets of unlike workers',
    rounds: 1,
  },
}

/** Of the set that a scenario is in. */
export function roundsOf(scenario: Scenario): number {
  const sets = Object.keys(scenarioSets) as (keyof typeof scenarioSets)[]
  const own = sets.find(set => (scenarioSets[set] as readonly Scenario[]).includes(scenario))
  return SETS[own ?? 'all'].rounds
}

export const scenarios: readonly Scenario[] = Object.values(scenarioSets).flat()
