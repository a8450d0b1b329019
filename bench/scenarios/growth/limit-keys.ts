/** P12: does a job cost more when jobs are limited by very many keys instead of one? */

import { storeNumberedJobs } from '../../jobs/numbered-jobs.ts'
import { registerTask } from '../../jobs/stored-jobs.ts'
import { drainFirst, neededFor } from '../../loads/drain-first.ts'
import { JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import { COST } from '../../measure/cost.ts'
import { REDIS_MEMORY, redisMemory } from '../../measure/redis-memory.ts'
import type { Scenario } from '../scenario.ts'

const KEYS: Readonly<Record<string, number>> = { '1,000 keys': 1000, '10 keys': 10, '1 key': 1 }
/** So many that one key alone keeps a worker busy. */
const PER_KEY = 500

export const limitKeys: Scenario = {
  id: 'limit-keys',
  question: `P12 drain, 1 to 1,000 keys of at most ${PER_KEY} jobs at once`,
  figures: [COST, JOBS_PER_SECOND, REDIS_MEMORY],
  variants: Object.keys(KEYS).map(name => ({
    name,
    peer: 'longshore',
    workload: { concurrencyPerKey: PER_KEY },
  })),
  async measure(setting) {
    const { database, sizes } = setting
    const stored = neededFor(sizes.crowdJobs)
    await registerTask(database, 'noop', { concurrencyPerKey: PER_KEY })
    await storeNumberedJobs(database, stored, { keys: KEYS[setting.side] ?? 1 })
    const measured = await drainFirst(setting, sizes.crowdJobs, stored)
    measured.figures[REDIS_MEMORY.name] = await redisMemory(setting)
    return measured
  },
}
