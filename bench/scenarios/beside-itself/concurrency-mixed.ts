/** L9: do 99 tasks without a limit pay for one that has one? */
import { drain } from '../../loads/drain.ts'
import { JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import type { Scenario } from '../scenario.ts'

export const concurrencyMixed: Scenario = {
  id: 'concurrency-mixed',
  question: 'L9 drain of 100 tasks, one of them limited to 10, four worker processes',
  figures: [JOBS_PER_SECOND],
  variants: [
    { name: '1 of 100 limited', workload: { tasks: 100, limited: { tasks: 1, concurrency: 10 } } },
    { name: 'none limited', workload: { tasks: 100 } },
  ],
  measure: setting => drain(setting, 4, setting.sizes.highJobs),
}
