/** Owns a fleet's run: its workers wait, its loads come for a while, and then everything must have run exactly once. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Producer, Task } from '../../src/index.ts'
import { nowUs } from '../jobs/clock.ts'
import type { Cores } from '../measure/cpu.ts'
import type { Setting } from '../measure/setting.ts'
import { beginStretch } from '../measure/timed-stretch.ts'
import type { Writes } from '../measure/writes.ts'
import type { ForkedWorker } from '../processes/fork-worker.ts'
import { type Fleet, type FleetJob, type FleetLoad, keyOf } from './fleet.ts'
import type { FleetReport } from './fleet-process.ts'
import type { FleetRun } from './idle-wait.ts'

type Longshore = typeof import('../../src/index.ts')

/** Jobs of a backlog that are enqueued in one call. */
const CHUNK = 200
const LIMIT_MS = 120_000

export interface FleetCourse {
  readonly runs: readonly FleetRun[]
  /** When the loads ended. */
  readonly untilUs: number
  readonly cores: Cores
  readonly writes: Writes
  readonly seconds: number
}

interface Stored {
  readonly load: number
  readyUs: number
}

export async function runFleet(setting: Setting, fleet: Fleet, forMs: number): Promise<FleetCourse> {
  const { postgres, redis, longshore: folder } = setting.surroundings
  const longshore: Longshore = await import(`${folder}/dist/index.js`)
  const keys = new Set(fleet.workers.flatMap(({ properties = {} }) => Object.keys(properties)))
  if (keys.size > 0) await longshore.setPropertyKeys({ postgres, keys: [...keys] })
  const tasks = fleet.tasks.map(task => longshore.defineTask<FleetJob>(task))
  const producer = longshore.createProducer({
    postgres,
    ...(redis === undefined ? {} : { redis }),
    tasks,
  })
  const workers = fleet.workers.map((_, number) =>
    setting.fork<FleetReport>('liveness/fleet-process', { fleet, number }),
  )
  try {
    await Promise.all(workers.map(worker => worker.loaded))
    for (const worker of workers) worker.begin()
    await Promise.all(workers.map(worker => worker.ready))
    return await loadFleet(setting, fleet, forMs, workers, { producer, tasks })
  } finally {
    await producer.close()
  }
}

async function loadFleet(
  setting: Setting,
  fleet: Fleet,
  forMs: number,
  workers: readonly ForkedWorker<FleetReport>[],
  { producer, tasks }: { producer: Producer; tasks: readonly Task<FleetJob>[] },
): Promise<FleetCourse> {
  const stored: Stored[] = []
  const ran = () => workers.reduce((sum, worker) => sum + worker.ran, 0)
  const broken = Promise.race(workers.map(worker => worker.broken))
  broken.catch(() => undefined) // told to those that wait for it
  const enqueue = async (load: FleetLoad, count: number) => {
    const task = tasks.find(({ name }) => name === load.task)
    if (!task) throw new Error(`the fleet has no task "${load.task}"`)
    const jobs = Array.from({ length: count }, (): Stored => {
      const job = { load: fleet.loads.indexOf(load), readyUs: Number.POSITIVE_INFINITY }
      stored.push(job)
      return job
    })
    const first = stored.length - count
    const { queue, tag, constraints, priority, runMs } = load
    await producer.enqueueMany(
      task,
      jobs.map((_, i) => ({ seq: first + i, runMs })),
      {
        ...(queue === undefined ? {} : { queue }),
        ...(tag === undefined ? {} : { tag }),
        ...(constraints ? { constraints } : {}),
        ...(priority === undefined ? {} : { priority }),
        each: ({ seq }) => {
          const key = keyOf(load, seq)
          return key === undefined ? undefined : { concurrencyKey: key }
        },
      },
    )
    const readyUs = nowUs()
    for (const job of jobs) job.readyUs = readyUs
  }

  const stretch = await beginStretch(
    setting,
    workers.map(worker => worker.pid),
  )
  const startAt = performance.now()
  const endAt = startAt + forMs
  const come = async (load: FleetLoad) => {
    const { comes } = load
    let come = 0
    while (performance.now() < endAt) {
      if ('kept' in comes) {
        while (stored.length - ran() < comes.kept) await enqueue(load, CHUNK)
      } else if (come < ((performance.now() - startAt) * comes.perSecond) / 1000) {
        come++
        await enqueue(load, 1)
        continue
      }
      await Promise.race([pause(5), broken])
    }
  }
  await Promise.all(fleet.loads.map(come))
  const untilUs = nowUs()
  const { cores, writes, seconds } = await stretch.end()

  const giveUpAt = performance.now() + LIMIT_MS
  while (ran() < stored.length) {
    if (performance.now() > giveUpAt)
      throw new Error(`${ran()} of ${stored.length} jobs ran in ${LIMIT_MS / 1000} s after the loads`)
    await Promise.race([pause(20), broken])
  }
  const reports = await Promise.all(workers.map(worker => worker.finish()))
  return { runs: runsOf(stored, reports), untilUs, cores, writes, seconds }
}

/** Throws unless each job ran exactly once. */
function runsOf(stored: readonly Stored[], reports: readonly FleetReport[]): FleetRun[] {
  const runs: FleetRun[] = []
  for (const [worker, { seqs, beginsUs, endsUs }] of reports.entries()) {
    for (const [i, seq] of seqs.entries()) {
      if (runs[seq]) throw new Error(`job ${seq} ran again`)
      const { load, readyUs } = stored[seq] as Stored
      runs[seq] = { seq, load, readyUs, worker, beginUs: beginsUs[i] ?? 0, endUs: endsUs[i] ?? 0 }
    }
  }
  const missing = stored.findIndex((_, seq) => !runs[seq])
  if (missing >= 0) throw new Error(`job ${missing} of ${stored.length} did not run`)
  return runs
}
