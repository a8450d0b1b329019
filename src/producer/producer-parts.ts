/** Owns what the verbs of one producer share. `create-producer.ts` puts it together. */
import type { Task } from '../job/task.ts'
import type { PostgresCalls } from './call-postgres.ts'
import type { JobInserts } from './insert-jobs.ts'
import type { JobShapes } from './job-shapes.ts'
import type { KnownLanes } from './known-lanes.ts'

export interface ProducerParts {
  calls: PostgresCalls
  lanes: KnownLanes
  shapes: JobShapes
  inserts: JobInserts
  /** See one-task-a-name.ts. */
  checkName: (task: Task) => void
  maxPayloadBytes: number
}
