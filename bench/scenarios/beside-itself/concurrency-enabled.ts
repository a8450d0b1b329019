/** L9: how fast are no-op jobs handed over through ten slots, and how much of the time does a slot stand empty? */
import { drain } from '../../loads/drain.ts'
import { JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import { idleSlots, SLOTS_IDLE } from '../../measure/slots-idle.ts'
import type { Scenario } from '../scenario.ts'

const LIMIT = 10
const LIMITED = 'limit 10'

export const concurrencyEnabled: Scenario = {
  id: 'concurrency-enabled',
  question: 'L9 drain, every task limited to 10, four worker processes',
  figures: [JOBS_PER_SECOND, SLOTS_IDLE],
  variants: [
    { name: LIMITED, workload: { limited: { tasks: 1, concurrency: LIMIT } } },
    { name: 'no limit', workload: {} },
  ],
  async measure(setting) {
    if (setting.side !== LIMITED) return drain(setting, 4)
    const measured = await drain(setting, 4, setting.sizes.slowJobs)
    measured.figures[SLOTS_IDLE.name] = await idleSlots(setting, LIMIT)
    return measured
  },
}
