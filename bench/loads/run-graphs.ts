/** Owns running jobs that depend on each other: from the first submission until none is left, and then the audit. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Producer, Task } from '../../src/index.ts'
import { nowUs } from '../jobs/clock.ts'
import type { JobData } from '../jobs/job-data.ts'
import { checkTallies } from '../jobs/tally.ts'
import { COST, costOf } from '../measure/cost.ts'
import type { Measurement } from '../measure/measurement.ts'
import type { Setting } from '../measure/setting.ts'
import { beginStretch } from '../measure/timed-stretch.ts'
import { JOBS_PER_SECOND } from './enqueue.ts'
import { keepInFlight } from './in-flight.ts'

type Longshore = typeof import('../../src/index.ts')

export const SUBMITTED = { name: 'submitted', unit: 'ms' } as const

/** What is submitted, made ready before the clock starts. */
export interface Submission {
  /** In all, numbered from 0 on. */
  readonly jobs: number
  readonly calls: number
  readonly inFlight: number
  call(i: number): Promise<unknown>
}

export type Prepare = (producer: Producer, task: Task<JobData>) => Submission

const IDLE_MS = 1000
const LIMIT_MS = 120_000

export interface GraphsRun {
  readonly measured: Measurement
  /** What the worker took for latencies, in order: where `t` is 0 the moments at which the jobs began. */
  readonly latenciesUs: Float64Array
}

export async function runGraphs(setting: Setting, prepare: Prepare): Promise<GraphsRun> {
  const { postgres, redis, longshore: folder } = setting.surroundings
  const longshore: Longshore = await import(`${folder}/dist/index.js`)
  const task = longshore.defineTask<JobData>({ name: 'noop' })
  const producer = longshore.createProducer({
    postgres,
    ...(redis === undefined ? {} : { redis }),
    tasks: [task],
  })
  try {
    const run = await submitAndWait(setting, prepare(producer, task))
    await checkAudit(longshore, postgres)
    return run
  } finally {
    await producer.close()
  }
}

async function submitAndWait(
  setting: Setting,
  { jobs, calls, inFlight, call }: Submission,
): Promise<GraphsRun> {
  const worker = setting.forkWorker(jobs, jobs)
  await worker.loaded
  worker.begin()
  await worker.ready
  await setting.database.settle()
  await pause(IDLE_MS)

  const stretch = await beginStretch(setting, [worker.pid])
  const startUs = nowUs()
  await keepInFlight(inFlight, i => i < calls, call)
  const submittedUs = nowUs()
  const giveUpAt = performance.now() + LIMIT_MS
  const until = async (isDone: () => boolean | Promise<boolean>) => {
    while (!(await isDone())) {
      if (performance.now() > giveUpAt)
        throw new Error(`${worker.ran} of ${jobs} jobs ran in ${LIMIT_MS / 1000} s`)
      await Promise.race([pause(5), worker.broken])
    }
  }
  await until(() => worker.ran >= jobs)
  await until(async () => (await setting.countUnfinished()) === 0)
  const endUs = nowUs()
  const { cores, seconds, writes } = await stretch.end()
  const report = await worker.finish()
  checkTallies(jobs, [report])
  const measured = { jobs, cores, seconds, writes }
  const figures = {
    [JOBS_PER_SECOND.name]: jobs / ((endUs - startUs) / 1e6),
    [SUBMITTED.name]: (submittedUs - startUs) / 1000,
    [COST.name]: costOf(measured),
  }
  return { measured: { ...measured, figures }, latenciesUs: report.latenciesUs }
}

async function checkAudit(longshore: Longshore, postgres: string): Promise<void> {
  const {
    violations: [violation],
  } = await longshore.doctor({ postgres })
  if (violation) throw new Error(`the audit found: ${violation.invariant}: ${violation.problem}`)
}
