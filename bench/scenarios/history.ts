/** P12: does a job cost more when ten million have ended before it? */
import { COST } from '../cost.ts'
import { drainFirst, neededFor } from '../drain-first.ts'
import { JOBS_PER_SECOND } from '../enqueue.ts'
import { ENQUEUE_RATE, enqueueBeside } from '../enqueue-beside.ts'
import { storeHistory, storeNumberedJobs } from '../numbered-jobs.ts'
import type { Scenario } from '../scenario.ts'
import { registerTask } from '../stored-jobs.ts'

const LONG = 'long history'

export const history: Scenario = {
  id: 'history',
  question: 'P12 drain and enqueue beside 10,000,000 ended jobs',
  figures: [COST, JOBS_PER_SECOND, ENQUEUE_RATE],
  variants: [LONG, 'no history'].map(name => ({ name, peer: 'longshore', workload: {} })),
  async measure(setting) {
    const { database, sizes } = setting
    await registerTask(database, 'noop')
    if (setting.side === LONG) await storeHistory(database, sizes.historyRows)
    const stored = neededFor(sizes.firstJobs)
    await storeNumberedJobs(database, stored)
    const measured = await drainFirst(setting, sizes.firstJobs, stored)
    measured.figures[ENQUEUE_RATE.name] = await enqueueBeside(setting, sizes.firstJobs)
    return measured
  },
}
