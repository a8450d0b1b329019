/** C10: does a claim slow down when ready jobs that the worker cannot run stand before those it can? */

import { registerTask, registerWorker, storeJobs } from '../../jobs/stored-jobs.ts'
import { claimFigures, timeClaims } from '../../loads/timed-claims.ts'
import type { Scenario } from '../scenario.ts'

const FEWER = 'fewer ahead'
const MORE = 'more ahead'
const BEHIND = 1000

export const unmatchableHead: Scenario = {
  id: 'unmatchable-head',
  question: 'C10 a claim behind 500,000 and 2,000,000 jobs for other workers',
  figures: claimFigures(['claim']),
  variants: [MORE, FEWER, 'none ahead'].map(name => ({ name, workload: {} })),
  measure: setting =>
    timeClaims(setting, async database => {
      const [fewer, more] = setting.sizes.ahead
      const ahead = { [FEWER]: fewer, [MORE]: more }[setting.side] ?? 0
      await registerTask(database, 'noop')
      const id = await registerWorker(database, ['noop'])
      if (ahead > 0) await storeJobs(database, [{ task: 'noop', constraintTag: 'c:gpu=h100' }], ahead)
      await storeJobs(database, [{ task: 'noop' }], BEHIND)
      return [{ name: 'claim', id }]
    }),
}
