/**
 * Owns the measurement of a drain by workers that wait already: the jobs appear all at once. With many workers in one process
 * the other order would measure their start: the first would have done all before the last began.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { nowUs } from '../jobs/clock.ts'
import { storeNumberedJobs } from '../jobs/numbered-jobs.ts'
import { checkTallies } from '../jobs/tally.ts'
import { COST, costOf } from '../measure/cost.ts'
import type { Measurement } from '../measure/measurement.ts'
import type { Setting } from '../measure/setting.ts'
import { beginStretch } from '../measure/timed-stretch.ts'
import { JOBS_PER_SECOND } from './enqueue.ts'
import { untilServing } from './serving.ts'

const LIMIT_MS = 120_000

/** Drains as many before: every connection has to learn its statements, which takes longer than many a job. */
export async function drainIdle(setting: Setting, workers: number, jobs: number): Promise<Measurement> {
  const worker = setting.forkWorker(2 * jobs, 2 * jobs, { workers })
  await worker.loaded
  worker.begin()
  await worker.ready
  await untilServing(setting, workers)
  const until = async (isDone: () => boolean | Promise<boolean>) => {
    const giveUpAt = performance.now() + LIMIT_MS
    while (!(await isDone())) {
      if (performance.now() > giveUpAt)
        throw new Error(`${worker.ran} of ${2 * jobs} jobs ran in ${LIMIT_MS / 1000} s`)
      await Promise.race([pause(5), worker.broken])
    }
  }
  const untilNoneIsLeft = () => until(async () => (await setting.countUnfinished()) === 0)

  await storeNumberedJobs(setting.database, jobs, { isAnnounced: true })
  await until(() => worker.ran >= jobs)
  await untilNoneIsLeft()
  await setting.database.settle()

  await storeNumberedJobs(setting.database, jobs, { first: jobs, isAnnounced: true })
  const stretch = await beginStretch(setting, [worker.pid])
  const startUs = nowUs()
  await until(() => worker.ran >= 2 * jobs)
  const { cores, seconds, writes } = await stretch.end()
  await untilNoneIsLeft()
  const endUs = nowUs()
  checkTallies(2 * jobs, [await worker.finish()])
  const measured = { jobs, cores, seconds, writes }
  return {
    ...measured,
    figures: {
      [JOBS_PER_SECOND.name]: jobs / ((endUs - startUs) / 1e6),
      [COST.name]: costOf(measured),
    },
  }
}
