/** Q7: does a job cost more in a worker with ten tasks than in a worker with one? In a drain, and when jobs come one by one. */
import { drainIdle } from '../../loads/drain-idle.ts'
import { JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import { PACED_FIGURES, pace } from '../../loads/paced.ts'
import { COST_FIGURES, costOf } from '../../measure/cost.ts'
import type { Scenario } from '../scenario.ts'

const STEADY_PER_SECOND = 1000
const STEADY_COST = { name: 'steady cost', unit: 'µs', better: 'lower', isHeadline: true } as const
const STEADY_P50 = { name: 'steady start p50', unit: 'ms', better: 'lower' } as const
const [DRAIN_COST, ...OTHER_COSTS] = COST_FIGURES

export const tenTasks: Scenario = {
  id: 'ten-tasks',
  question: 'Q7 a worker with ten tasks beside one with a single task, direct mode',
  figures: [
    ...(DRAIN_COST ? [{ ...DRAIN_COST, isHeadline: true }] : []),
    ...OTHER_COSTS,
    JOBS_PER_SECOND,
    STEADY_COST,
    STEADY_P50,
  ],
  load: 'stream',
  variants: [
    { name: '10 tasks, jobs of all', workload: { tasks: 10 } },
    { name: '10 tasks, jobs of one', workload: { tasks: 10, busyTasks: 1 } },
    { name: '1 task', workload: {} },
  ],
  async measure(setting) {
    const { fleetJobs, crowdMs } = setting.sizes
    const drained = await drainIdle(setting, { processes: 1, workers: 1 }, fleetJobs)
    const steady = await pace(setting, STEADY_PER_SECOND, crowdMs)
    drained.figures[STEADY_COST.name] = costOf(steady)
    drained.figures[STEADY_P50.name] = steady.figures[PACED_FIGURES[0].name] ?? Number.NaN
    return drained
  },
}
