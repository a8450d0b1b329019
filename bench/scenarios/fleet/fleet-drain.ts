/** Q4 to Q6: what becomes of a drain in direct mode when more workers share it, all of them warm before the clock starts? */
import { type Crew, drainIdle } from '../../loads/drain-idle.ts'
import { JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import { COST_FIGURES } from '../../measure/cost.ts'
import type { Scenario } from '../scenario.ts'

/** The last one is what the others stand beside. */
const CREWS: Readonly<Record<string, Crew>> = {
  '2 processes': { processes: 2, workers: 1 },
  '4 processes': { processes: 4, workers: 1 },
  '8 processes': { processes: 8, workers: 1 },
  '16 processes': { processes: 16, workers: 1 },
  '50 workers in one': { processes: 1, workers: 50 },
  '200 workers in one': { processes: 1, workers: 200 },
  '1 process': { processes: 1, workers: 1 },
}

export const fleetDrain: Scenario = {
  id: 'fleet-drain',
  question: 'Q6 drain in direct mode, 1 to 16 worker processes, 50 and 200 workers in one',
  figures: [JOBS_PER_SECOND, ...COST_FIGURES],
  variants: Object.keys(CREWS).map(name => ({ name, workload: {} })),
  measure(setting) {
    const crew = CREWS[setting.side]
    if (!crew) throw new Error(`no side "${setting.side}"`)
    return drainIdle(setting, crew, setting.sizes.fleetJobs)
  },
}
