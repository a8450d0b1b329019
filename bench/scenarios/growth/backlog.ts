/** P12: does a job cost more when very many ready ones stand behind it, and does Redis grow with them? */

import { storeNumberedJobs } from '../../jobs/numbered-jobs.ts'
import { registerTask } from '../../jobs/stored-jobs.ts'
import { drainFirst, neededFor, THROUGH_REDIS } from '../../loads/drain-first.ts'
import { JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import { ENQUEUE_RATE, enqueueBeside } from '../../loads/enqueue-beside.ts'
import { COST } from '../../measure/cost.ts'
import { REDIS_MEMORY, redisMemory } from '../../measure/redis-memory.ts'
import type { Scenario } from '../scenario.ts'

/** Times the size that the scenario begins with. */
const FACTORS: Readonly<Record<string, number>> = {
  '500×': 500,
  '100×': 100,
  '10×': 10,
  '1×': 1,
}
const STANDING = { name: 'standing', unit: 'jobs' } as const

export const backlog: Scenario = {
  id: 'backlog',
  question: 'P12 the first jobs of a backlog of 10,000 to 5,000,000',
  figures: [COST, JOBS_PER_SECOND, ENQUEUE_RATE, REDIS_MEMORY, STANDING],
  variants: Object.keys(FACTORS).map(name => ({ name, peer: 'longshore', workload: {} })),
  async measure(setting) {
    const { database, sizes } = setting
    const standing = sizes.standing * (FACTORS[setting.side] ?? 1)
    const stored = standing + neededFor(sizes.firstJobs)
    await registerTask(database, 'noop')
    await storeNumberedJobs(database, stored)
    const measured = await drainFirst(setting, sizes.firstJobs, stored, THROUGH_REDIS)
    measured.figures[STANDING.name] = standing
    measured.figures[REDIS_MEMORY.name] = await redisMemory(setting)
    measured.figures[ENQUEUE_RATE.name] = await enqueueBeside(setting, sizes.firstJobs)
    return measured
  },
}
