/**
 * Owns the measurement of the whole way: producer, relay and worker at once, nothing stored before. The clock runs from the
 * first call of enqueue to the moment the store holds no unfinished job.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { jobDataList } from '../jobs/job-data.ts'
import { checkTallies } from '../jobs/tally.ts'
import type { Measurement } from '../measure/measurement.ts'
import type { Setting } from '../measure/setting.ts'
import { beginStretch } from '../measure/timed-stretch.ts'
import { fill, JOBS_PER_SECOND } from './enqueue.ts'

const WIDTH = 4
/** A queue in use has been planned for, compiled and connected: these run before the clock starts. */
const WARM = 2000
const IDLE_MS = 300
const LIMIT_MS = 120_000

export async function goTheWholeWay(setting: Setting): Promise<Measurement> {
  const jobs = setting.sizes.wholeJobs
  const total = jobs + WARM
  const producer = await setting.peer.openProducer()
  try {
    const worker = setting.forkWorker(total, jobs)
    await producer.addMany(jobDataList(jobs, WARM))
    // With jobs in it: statistics of an empty table would mislead the planner for the whole measurement.
    await setting.database.settle()
    await worker.loaded
    worker.begin()
    const until = async (what: string, isDone: () => boolean | Promise<boolean>) => {
      const giveUpAt = performance.now() + LIMIT_MS
      while (!(await isDone())) {
        if (performance.now() > giveUpAt) throw new Error(`${what}: not in ${LIMIT_MS / 1000} s`)
        await Promise.race([pause(5), worker.broken])
      }
    }
    const isEmpty = async () => (await setting.countUnfinished()) === 0

    await until('the first jobs have run', () => worker.ran >= WARM)
    await until('the store is empty', isEmpty)
    await pause(IDLE_MS)

    const stretch = await beginStretch(setting, [worker.pid])
    await fill(producer, jobs, WIDTH)
    await until('every job has run', () => worker.ran >= total)
    await until('no job is unfinished', isEmpty)
    const { cores, seconds, writes } = await stretch.end()

    checkTallies(total, [await worker.finish()])
    return { jobs, figures: { [JOBS_PER_SECOND.name]: jobs / seconds }, cores, seconds, writes }
  } finally {
    await producer.close()
  }
}
