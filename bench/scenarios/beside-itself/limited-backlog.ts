/** L7: does a claim slow down when ready jobs that wait for a limit stand before those that can run? */

import { fillLimits, registerTask, registerWorker, storeJobs } from '../../jobs/stored-jobs.ts'
import { claimFigures, timeClaims } from '../../loads/timed-claims.ts'
import type { Scenario } from '../scenario.ts'

const FULL_TASK = 'full task'
const FULL_KEYS = 'full keys'
const OPEN_KEYS = 'open keys'
const FREE_TASKS = 98
const BESIDE_ONE = 'one free task'
const BESIDE_MANY = 'many free tasks'

export const limitedBacklog: Scenario = {
  id: 'limited-backlog',
  question: 'L7 a claim behind 1,000,000 jobs of a full limit, or of 1,000 keys',
  figures: claimFigures([BESIDE_ONE, BESIDE_MANY]),
  variants: [FULL_TASK, FULL_KEYS, OPEN_KEYS, 'none waiting'].map(name => ({ name, workload: {} })),
  measure: setting =>
    timeClaims(setting, async database => {
      const { backlog, keys } = setting.sizes
      const free = Array.from({ length: FREE_TASKS }, (_, n) => `free-${n}`)
      for (const task of free) await registerTask(database, task)
      const hasKeys = setting.side === FULL_KEYS || setting.side === OPEN_KEYS
      await registerTask(
        database,
        'limited',
        setting.side === FULL_TASK ? { concurrency: 10 } : hasKeys ? { concurrencyPerKey: 1 } : {},
      )
      const holder = await registerWorker(database, ['limited'])
      if (setting.side === FULL_TASK) await storeJobs(database, [{ task: 'limited' }], backlog)
      if (hasKeys) {
        const lanes = Array.from({ length: keys }, (_, n) => ({ task: 'limited', key: `key-${n}` }))
        await storeJobs(database, lanes, Math.ceil(backlog / keys))
      }
      if (setting.side === FULL_TASK || setting.side === FULL_KEYS) await fillLimits(database, holder)
      await storeJobs(
        database,
        free.map(task => ({ task })),
        100,
      )
      return [
        { name: BESIDE_ONE, id: await registerWorker(database, ['limited', 'free-0']) },
        { name: BESIDE_MANY, id: await registerWorker(database, ['limited', ...free]) },
      ]
    }),
}
