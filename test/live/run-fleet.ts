/**
 * Runs one fleet of real workers on real stores: its loads come and its workers change as planned, while the watch looks at the
 * truth ten times a second. Backlogs that are kept up last until no other job waits without an explanation; then they are cancelled,
 * and everything else that a worker may run must end. Throws with the whole history when a job stalls.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { defineTask, type Task } from '../../src/index.ts'
import type { TestDatabase } from '../support/database.ts'
import type { Deployment } from '../support/deployment.ts'
import { gate } from '../support/signals.ts'
import { createFleetWorker } from './fleet-worker.ts'
import { createHistory } from './history.ts'
import { enqueueLoad } from './loads.ts'
import { look, readEvidence } from './look.ts'
import { type FleetPlan, type LoadPlan, mayRun, type TaskPlan } from './plan.ts'
import { createWatch, type Sample } from './watch.ts'

export interface FleetReport {
  /** How many there were. */
  runs: number
  /** The longest that any job has waited without an explanation. */
  longestMs: number
  /** The loads of the runs, in the order in which they began. */
  begun: readonly number[]
}

export interface Stage {
  database: TestDatabase
  deployment: Deployment
}

/** What the suite allows. A second is promised; the machine may be busy with something else. */
const BOUND_MS = 10_000
const SAMPLE_MS = 100
/** Backlogs are kept up for so long after the last that is planned: a job that is overtaken shows by then. */
const KEPT_MS = 500

let fleets = 0

export async function runFleet(
  { database, deployment }: Stage,
  plan: FleetPlan,
  { boundMs = BOUND_MS }: { boundMs?: number } = {},
): Promise<FleetReport> {
  // Fleets of one database share its queues, and no task.
  const prefix = `f${++fleets}.`
  const tasks = new Map(plan.tasks.map(task => [task.name, realTask(task, prefix)]))
  const taskOf = (name: string) => tasks.get(name) as Task
  const producer = deployment.producer({ tasks: [...tasks.values()] })
  const history = createHistory(plan)
  const watch = createWatch({ tasks: plan.tasks, boundMs, mostStepMs: 3 * SAMPLE_MS })
  const calls = trackCalls()
  const planned = gate()
  const begun: number[] = []
  let isWindingDown = false

  const enqueue = async (load: LoadPlan, number: number, count = load.count) => {
    const workflow = `${prefix}${number}`
    history.enqueued(
      number,
      await enqueueLoad(producer, taskOf(load.task), { ...load, count }, number, workflow),
    )
  }
  const workers = plan.workers.map(worker =>
    createFleetWorker(worker, {
      deployment,
      tasks: worker.tasks.map(taskOf),
      planned: planned.opened,
      onBegin(id, { load: number }, name) {
        begun.push(number)
        history.add(`${name} begins ${id}`)
        const load = plan.loads[number]
        if (load?.isKept && !isWindingDown) calls.start(enqueue(load, number, 1))
      },
      onEnd: (id, name) => history.add(`${name} ends ${id}`),
    }),
  )
  const sample = () =>
    look(
      database,
      prefix,
      workers.flatMap(worker => worker.known ?? []),
    )
  const cancel = (jobs: Sample['jobs']) =>
    database.rows('select longshore.cancel($1)', [jobs.map(({ id }) => id)])
  const check = async (): Promise<Sample> => {
    const seen = await sample()
    const stall = watch.see(seen)
    if (stall) {
      const rows = () => readEvidence(database, prefix)
      throw await history.of(stall, seen, { producer, runs: () => deployment.runs(), rows })
    }
    return seen
  }

  // One after another, so that their order is that of the plan, however slow the machine is.
  let enqueued = Promise.resolve()
  const enqueueNext = (load: LoadPlan, number: number) => {
    enqueued = enqueued.then(() => enqueue(load, number))
    return enqueued
  }
  const events = [
    ...plan.loads.map((load, number) => ({ atMs: load.atMs, happen: () => enqueueNext(load, number) })),
    ...workers.flatMap(worker => [
      ...(worker.plan.joinsAtMs ? [{ atMs: worker.plan.joinsAtMs, happen: worker.join }] : []),
      ...(worker.plan.changes ?? []).map(change => ({
        atMs: change.atMs,
        happen: async () => {
          history.add(`${worker.plan.name}: ${change.to} begins`)
          await worker.apply(change)
          history.add(`${worker.plan.name}: ${change.to} is done`)
        },
      })),
    ]),
  ].sort((a, b) => a.atMs - b.atMs)

  try {
    await Promise.all(workers.filter(worker => !worker.plan.joinsAtMs).map(worker => worker.join()))
    const began = performance.now()
    const lastMs = events.at(-1)?.atMs ?? 0
    for (;;) {
      const nowMs = performance.now() - began
      while (events[0] && events[0].atMs <= nowMs) calls.start(events.shift()?.happen())
      if (events.length === 0 && calls.underWay === 0) planned.open()
      await pause(SAMPLE_MS)
      calls.mustHold()
      const seen = await check()
      if (nowMs < lastMs + KEPT_MS) continue
      const isKept = (jobId: string) => plan.loads[history.loadOf(jobId) ?? -1]?.isKept === true
      if (!isWindingDown && watch.waiting.every(({ job }) => isKept(job.id))) {
        isWindingDown = true
        await calls.settled()
        await cancel((await sample()).jobs.filter(job => isKept(job.id)))
      } else if (isWindingDown && hasEnded(seen)) break
    }
  } finally {
    isWindingDown = true
    planned.open()
    await calls.settled()
    await Promise.all(workers.map(worker => worker.leave()))
    await cancel((await sample()).jobs)
  }
  calls.mustHold()
  return { runs: begun.length, longestMs: watch.longestMs, begun }
}

const realTask = ({ name, concurrency, concurrencyPerKey }: TaskPlan, prefix: string): Task =>
  defineTask({
    name: prefix + name,
    ...(concurrency === undefined ? {} : { concurrency }),
    ...(concurrencyPerKey === undefined ? {} : { concurrencyPerKey }),
  })

/** Nothing runs, and what is left waits for what nobody may run. */
const hasEnded = ({ jobs, workers }: Sample) =>
  jobs.every(
    job =>
      job.state !== 'running' &&
      (job.waitsFor > 0 || !workers.some(worker => !worker.isDrained && mayRun(worker, job))),
  )

/** Calls that nobody waits for one by one. */
function trackCalls() {
  const underWay = new Set<Promise<unknown>>()
  const errors: unknown[] = []
  return {
    start(call: Promise<unknown> | undefined) {
      const tracked: Promise<unknown> = Promise.resolve(call)
        .catch(error => errors.push(error))
        .finally(() => underWay.delete(tracked))
      underWay.add(tracked)
    },
    get underWay() {
      return underWay.size
    },
    async settled() {
      await Promise.all(underWay)
    },
    /** Throws what a call has rejected with. */
    mustHold() {
      if (errors.length > 0) throw errors[0]
    },
  }
}
