/** P3: how fast does one worker process empty a backlog? */
import { drain } from '../../loads/drain.ts'
import { JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import type { Scenario } from '../scenario.ts'

export const drain1: Scenario = {
  id: 'drain1',
  question: 'P3 drain, one worker process',
  figures: [JOBS_PER_SECOND],
  measure: setting => drain(setting, 1),
}
