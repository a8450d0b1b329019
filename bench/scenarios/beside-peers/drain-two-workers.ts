/** P4: do two worker processes empty a backlog faster than one, or do they get in each other's way? */
import { drain } from '../../loads/drain.ts'
import { JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import type { Scenario } from '../scenario.ts'

export const drain2: Scenario = {
  id: 'drain2',
  question: 'P4 drain, two worker processes',
  figures: [JOBS_PER_SECOND],
  measure: setting => drain(setting, 2),
}
