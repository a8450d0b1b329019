/** P12: does a job cost more when ten million have ended before it? */

import { storeHistory, storeNumberedJobs } from '../../jobs/numbered-jobs.ts'
import { registerTask } from '../../jobs/stored-jobs.ts'
import { drainFirst, neededFor } from '../../loads/drain-first.ts'
import { JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import { ENQUEUE_RATE, enqueueBeside } from '../../loads/enqueue-beside.ts'
import { COST } from '../../measure/cost.ts'
import type { Scenario } from '../scenario.ts'

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
