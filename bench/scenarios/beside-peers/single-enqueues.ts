/** P1: how many jobs a second can one process enqueue, each by a call of its own that waits until the job is durable? */
import { enqueueSingly, JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import type { Scenario } from '../scenario.ts'

const singly = (width: number): Scenario => ({
  id: `enqueue${width}`,
  question: `P1 single enqueues, ${width} in flight`,
  figures: [JOBS_PER_SECOND],
  isOfProducers: true,
  measure: setting => enqueueSingly(setting, width),
})

export const enqueue32 = singly(32)
export const enqueue256 = singly(256)
