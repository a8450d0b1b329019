/** P12: does a job cost more when many workers share the work? All of them in one process, so that only their number changes. */

import { drainIdle } from '../../loads/drain-idle.ts'
import { JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import { pace } from '../../loads/paced.ts'
import { COST, costOf } from '../../measure/cost.ts'
import type { Scenario } from '../scenario.ts'

const COUNTS = [200, 50, 10, 1]
const MODES = ['fanout', 'balanced'] as const
const STEADY_PER_SECOND = 1000
const STEADY_COST = { name: 'steady cost', unit: 'µs', better: 'lower' } as const
const STEADY_P99 = { name: 'steady start p99', unit: 'ms', better: 'lower' } as const

const workers = (mode: (typeof MODES)[number]): Scenario => {
  const sides = new Map(COUNTS.map(count => [count === 1 ? '1 worker' : `${count} workers`, count]))
  return {
    id: `workers-${mode}`,
    question: `P12 1 to 200 workers, ${mode}: a drain, and 1,000 single enqueues a second`,
    figures: [COST, JOBS_PER_SECOND, STEADY_COST, STEADY_P99],
    load: 'stream',
    variants: [...sides.keys()].map(name => ({
      name,
      peer: 'longshore',
      workload: { sql: `insert into longshore.queues (name, schedule_mode) values ('default', '${mode}')` },
    })),
    async measure(setting) {
      const { sizes, side } = setting
      const workers = sides.get(side) ?? 1
      const drained = await drainIdle(setting, { processes: 1, workers }, sizes.crowdJobs)
      const steady = await pace(setting, STEADY_PER_SECOND, sizes.crowdMs, { workers })
      drained.figures[STEADY_COST.name] = costOf(steady)
      drained.figures[STEADY_P99.name] = steady.figures['start p99'] ?? Number.NaN
      return drained
    },
  }
}

export const workersFanout = workers('fanout')
export const workersBalanced = workers('balanced')
