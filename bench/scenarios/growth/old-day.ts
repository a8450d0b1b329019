/** X12: how long does a settle wait while a day with very many jobs of groups is let go? */
import { setTimeout as pause } from 'node:timers/promises'
import { storeOldDay } from '../../jobs/old-day.ts'
import { registerTask } from '../../jobs/stored-jobs.ts'
import { beginSettles } from '../../loads/timed-settles.ts'
import { quantile } from '../../measure/statistics.ts'
import { beginStretch } from '../../measure/timed-stretch.ts'
import type { Database } from '../../stores/database.ts'
import type { Scenario } from '../scenario.ts'

const LOCKED = { name: 'longest wait for a lock', unit: 'ms', better: 'lower' } as const
const LONGEST = { name: 'longest settle', unit: 'ms', better: 'lower', isHeadline: true } as const
const P99 = { name: 'settle p99', unit: 'ms', better: 'lower' } as const
const STEP = { name: 'longest step', unit: 'ms', better: 'lower' } as const
const JOBS = { name: 'old jobs', unit: 'jobs' } as const
const OLD_DAY = 'an old day goes'
/** Settles alone, to compare with. */
const ALONE_MS = 10_000

export const oldDay: Scenario = {
  id: 'old-day',
  question: 'X12 settles while a day of 5,000,000 jobs of groups is let go',
  figures: [LONGEST, LOCKED, P99, STEP, JOBS],
  variants: [OLD_DAY, 'no old day'].map(name => ({ name, workload: {} })),
  async measure(setting) {
    const { database, sizes } = setting
    await registerTask(database, 'noop')
    const jobs = setting.side === OLD_DAY ? sizes.oldDayJobs : 0
    const name = jobs > 0 ? await storeOldDay(database, jobs) : undefined
    await database.settle()
    const settles = await beginSettles(database)
    const stretch = await beginStretch(setting, [])
    const longestStepMs = name === undefined ? await pause(ALONE_MS) : await letGo(database, name)
    const { cores, seconds, writes } = await stretch.end()
    const { timesMs, longestLockMs } = await settles.end()
    return {
      jobs: timesMs.length,
      figures: {
        [LOCKED.name]: longestLockMs,
        [LONGEST.name]: timesMs.reduce((most, ms) => Math.max(most, ms), 0),
        [P99.name]: quantile(timesMs, 0.99),
        ...(longestStepMs === undefined ? {} : { [STEP.name]: longestStepMs }),
        [JOBS.name]: jobs,
      },
      cores,
      seconds,
      writes,
    }
  },
}

/** Step by step, as the leader does. Returns how long the longest step took. */
async function letGo(database: Database, partition: string): Promise<number> {
  let longestMs = 0
  for (let isDone = false; !isDone; ) {
    const from = performance.now()
    const [step] = await database.query('select is_done, held_by from longshore.forget_history()')
    const ms = performance.now() - from
    longestMs = Math.max(longestMs, ms)
    isDone = step?.['is_done'] === true
    await pause(step?.['held_by'] ? 500 : ms)
  }
  const left = await database.query(`select from pg_class where relname = '${partition}'`)
  if (left.length > 0) throw new Error(`${partition} is still there`)
  return longestMs
}
