/** One real worker of a fleet: it notes what its handlers begin and end, and what the test makes it do. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Task, Worker } from '../../src/index.ts'
import type { Deployment } from '../support/deployment.ts'
import { type KnownWorker, runKey } from './look.ts'
import type { WorkerChange, WorkerPlan } from './plan.ts'

export interface Payload {
  load: number
  runMs: number
  isHeld: boolean
}

export interface FleetWorker {
  readonly plan: WorkerPlan
  /** Undefined before it has started and after it has begun to leave. */
  readonly known: KnownWorker | undefined
  join(): Promise<void>
  apply(change: WorkerChange): Promise<void>
  leave(): Promise<void>
}

export function createFleetWorker(
  plan: WorkerPlan,
  options: {
    deployment: Deployment
    /** Those that it serves. */
    tasks: readonly Task[]
    /** Resolves when everything that is planned has happened. */
    planned: Promise<void>
    onBegin: (jobId: string, payload: Payload, worker: string) => void
    onEnd: (jobId: string, worker: string) => void
  },
): FleetWorker {
  const inside = new Map<string, number>()
  const begun = new Set<string>()
  let worker: Worker | undefined
  let known: (KnownWorker & { isDrained: boolean }) | undefined

  const handlers = options.tasks.map(task =>
    task.handle(async (job, { signal }) => {
      const payload = job.payload as Payload
      inside.set(job.id, (inside.get(job.id) ?? 0) + 1)
      begun.add(runKey(job.id, job.attempt))
      options.onBegin(job.id, payload, plan.name)
      try {
        if (payload.isHeld) await options.planned
        await pause(payload.runMs * (plan.slowness ?? 1), undefined, { signal })
      } finally {
        const left = (inside.get(job.id) ?? 1) - 1
        if (left > 0) inside.set(job.id, left)
        else inside.delete(job.id)
        options.onEnd(job.id, plan.name)
      }
    }),
  )

  const leave = async () => {
    known = undefined
    await worker?.stop({ deadline: '2s' })
  }

  return {
    plan,
    get known() {
      return known && { ...known, inside: [...inside.keys()] }
    },
    async join() {
      const { name, queues, tags, properties, permits, pollInterval } = plan
      worker = await options.deployment.worker({
        ...{ name, queues, tags, properties, handlers },
        maxConcurrentTasks: permits,
        ...(pollInterval === undefined ? {} : { pollInterval }),
      })
      // Started before: the answer is the id of its life.
      const { id } = await worker.start()
      const { tasks } = plan
      known = { id, name, permits, tasks, queues, tags, properties, isDrained: false, inside: [], begun }
    },
    async apply(change) {
      if (!worker || !known) throw new Error(`${plan.name} does not run: it cannot ${change.to}`)
      if (change.to === 'leave') return leave()
      // Until it has changed nothing is expected of it.
      known.isDrained = true
      if (change.to === 'properties') {
        await worker.setProperties(change.properties)
        known = { ...known, properties: change.properties }
      } else {
        await (change.to === 'drain' ? worker.drain() : worker.resume())
      }
      known.isDrained = worker.isDrained
    },
    leave,
  }
}
