/** L9: how much does a limit of 500 take from the speed of a drain? */
import { drain } from '../../loads/drain.ts'
import { JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import { idleSlots, SLOTS_IDLE } from '../../measure/slots-idle.ts'
import type { Scenario } from '../scenario.ts'

const LIMIT = 500
const LIMITED = 'limit 500'

export const concurrencyHigh: Scenario = {
  id: 'concurrency-high',
  question: 'L9 drain, limit 500, eight worker processes',
  figures: [JOBS_PER_SECOND, SLOTS_IDLE],
  variants: [
    { name: LIMITED, workload: { limited: { tasks: 1, concurrency: LIMIT } } },
    { name: 'no limit', workload: {} },
  ],
  async measure(setting) {
    const measured = await drain(setting, 8, setting.sizes.highJobs)
    if (setting.side === LIMITED) measured.figures[SLOTS_IDLE.name] = await idleSlots(setting, LIMIT)
    return measured
  },
}
