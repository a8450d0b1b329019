/**
 * Owns the measurement of draining: jobs are stored, then worker processes start, all at once. The clock runs from the first handler
 * call to the moment the store holds no unfinished job, so work put off until after the handlers counts too.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { nowUs } from '../jobs/clock.ts'
import { checkTallies } from '../jobs/tally.ts'
import type { Measurement } from '../measure/measurement.ts'
import type { Setting } from '../measure/setting.ts'
import { beginStretch } from '../measure/timed-stretch.ts'
import { fill, JOBS_PER_SECOND } from './enqueue.ts'

const FILL_WIDTH = 4
const LIMIT_MS = 180_000

/** Kept beside the rate: with the time before the first handler, in which a worker may fetch thousands of jobs. */
export const RATE_FROM_BEGIN = 'rate from begin'

export async function drain(
  setting: Setting,
  workerProcesses: number,
  jobs = setting.sizes.drainJobs,
): Promise<Measurement> {
  const producer = await setting.peer.openProducer()
  try {
    await fill(producer, jobs, FILL_WIDTH)
  } finally {
    await producer.close()
  }

  const workers = Array.from({ length: workerProcesses }, () => setting.forkWorker(jobs, jobs))
  await Promise.all(workers.map(worker => worker.loaded))
  await setting.database.settle()
  const broken = Promise.race(workers.map(worker => worker.broken))
  broken.catch(() => undefined) // told to whoever waits for it
  const ran = () => workers.reduce((sum, worker) => sum + worker.ran, 0)
  const giveUpAt = performance.now() + LIMIT_MS
  const until = async (what: string, isDone: () => boolean | Promise<boolean>) => {
    while (!(await isDone())) {
      if (performance.now() > giveUpAt) throw new Error(`${what}: not in ${LIMIT_MS / 1000} s`)
      await Promise.race([pause(5), broken])
    }
  }

  const beginUs = nowUs()
  for (const worker of workers) worker.begin()
  await until('the first job runs', () => ran() > 0)
  const stretch = await beginStretch(
    setting,
    workers.map(worker => worker.pid),
  )
  await until('every job has run', () => ran() >= jobs)
  const { cores, seconds, writes } = await stretch.end()
  await until('no job is unfinished', async () => (await setting.countUnfinished()) === 0)
  const endUs = nowUs()

  const reports = await Promise.all(workers.map(worker => worker.finish()))
  checkTallies(jobs, reports)
  const firstUs = Math.min(...reports.map(report => report.firstUs).filter(us => us > 0))
  const figures = {
    [JOBS_PER_SECOND.name]: jobs / ((endUs - firstUs) / 1e6),
    [RATE_FROM_BEGIN]: jobs / ((endUs - beginUs) / 1e6),
  }
  return { jobs, figures, cores, seconds, writes }
}
