/** Owns the list of scenarios, in the order they run. */
import type { Scenario } from '../scenario.ts'
import { bulk4 } from './bulk-enqueues.ts'
import { drain1 } from './drain-one-worker.ts'
import { drain2 } from './drain-two-workers.ts'
import { latency } from './light-load.ts'
import { enqueue32, enqueue256 } from './single-enqueues.ts'
import { stream } from './steady-stream.ts'

export const scenarios: readonly Scenario[] = [enqueue32, enqueue256, bulk4, drain1, drain2, latency, stream]
