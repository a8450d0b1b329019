/** Enqueues a load of a plan: plain jobs, the jobs of a group, or those of a workflow. */
import type { JobRef, Producer, Task } from '../../src/index.ts'
import type { Payload } from './fleet-worker.ts'
import type { LoadPlan } from './plan.ts'

/** `number`: of the load in its plan. `workflow`: the name of its workflow, if it is one. */
export async function enqueueLoad(
  producer: Producer,
  task: Task,
  load: LoadPlan,
  number: number,
  workflow: string,
): Promise<readonly JobRef[]> {
  const payload: Payload = { load: number, runMs: load.runMs, isHeld: load.isHeld ?? false }
  const options = {
    queue: load.queue,
    tag: load.tag,
    constraints: load.constraints,
    priority: load.priority,
    ...(load.delayMs ? { delay: load.delayMs } : {}),
    ...(load.key === undefined ? {} : { concurrencyKey: load.key }),
    ...(load.links === 'workflow' ? { workflow } : {}),
  }
  if (load.links !== 'chain' && load.links !== 'fan') {
    const payloads = Array.from({ length: load.count }, () => payload)
    return producer.enqueueMany(task, payloads, options)
  }
  const group = producer.group()
  const jobs: JobRef[] = []
  for (let n = 0; n < load.count; n++) {
    const parent = load.links === 'chain' ? jobs.at(-1) : jobs[0]
    jobs.push(group.add(task, payload, { ...options, ...(parent ? { after: parent } : {}) }))
  }
  await group.submit()
  return jobs
}
