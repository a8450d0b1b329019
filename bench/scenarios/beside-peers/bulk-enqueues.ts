/** P2: how many jobs a second can one process enqueue in bulk? */
import { enqueueInBulk, JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import type { Scenario } from '../scenario.ts'

export const bulk4: Scenario = {
  id: 'bulk4',
  question: 'P2 bulk, 1,000 a call, 4 calls in flight',
  figures: [JOBS_PER_SECOND],
  isOfProducers: true,
  measure: setting => enqueueInBulk(setting, 4),
}
