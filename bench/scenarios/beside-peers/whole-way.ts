/** P5: how many jobs a second go the whole way when producer, relay and worker share the machine? */
import { JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import { goTheWholeWay } from '../../loads/whole-way.ts'
import type { Scenario } from '../scenario.ts'

export const whole: Scenario = {
  id: 'whole',
  question: 'P5 whole way: bulk in, one worker process, all at once',
  figures: [JOBS_PER_SECOND],
  measure: goTheWholeWay,
}
