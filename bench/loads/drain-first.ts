/**
 * Owns the measurement of draining the first jobs of many that were stored by SQL. The worker is stopped once they have run;
 * the history must then hold exactly the jobs that it ran.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { COST, costOf } from '../measure/cost.ts'
import type { Measurement } from '../measure/measurement.ts'
import type { Setting } from '../measure/setting.ts'
import { beginStretch } from '../measure/timed-stretch.ts'
import { JOBS_PER_SECOND } from './enqueue.ts'
import { emptyRedis, untilFull } from './refill.ts'

const LIMIT_MS = 180_000
/** Until the worker's code is compiled. */
const WARM = 5000

/** So many workers do not leave a backlog to Postgres, which up to four do: they take each job through Redis. */
export const THROUGH_REDIS = 8

/** Of `stored` jobs, numbered from 0 on, `jobs` are counted. */
export async function drainFirst(
  setting: Setting,
  jobs: number,
  stored: number,
  workers = 1,
): Promise<Measurement> {
  const before = await countEnded(setting)
  const worker = setting.forkWorker(stored, 0, { workers, stopsFirst: true })
  await worker.loaded
  await setting.database.settle()
  // Jobs stored by SQL are not in the outbox.
  const { isNew } = await emptyRedis(setting)
  await untilFull(setting, isNew)
  const untilRan = async (count: number) => {
    const giveUpAt = performance.now() + LIMIT_MS
    while (worker.ran < count) {
      if (performance.now() > giveUpAt)
        throw new Error(`${worker.ran} of ${count} jobs ran in ${LIMIT_MS / 1000} s`)
      await Promise.race([pause(2), worker.broken])
    }
    return worker.ran
  }

  worker.begin()
  const from = await untilRan(WARM)
  const stretch = await beginStretch(setting, [worker.pid])
  const counted = (await untilRan(from + jobs)) - from
  const { cores, seconds, writes } = await stretch.end()

  const { seen, duplicates } = await worker.finish()
  const ran = seen.reduce((sum, one) => sum + one, 0)
  const ended = (await countEnded(setting)) - before
  if (ran !== ended || duplicates > 0)
    throw new Error(`${ran} jobs ran, ${duplicates} of them again; the history has ${ended}`)
  const measured = { jobs: counted, cores, seconds, writes }
  return {
    ...measured,
    figures: { [JOBS_PER_SECOND.name]: counted / seconds, [COST.name]: costOf(measured) },
  }
}

/** How many of `drainFirst` jobs must at least be stored. */
export const neededFor = (jobs: number): number => WARM + 2 * jobs

async function countEnded({ database }: Setting): Promise<number> {
  const [row] = await database.query('select count(*)::int as n from longshore.finished_jobs')
  return row?.['n'] as number
}
