/** Q9: what do a deployment that is idle, and a job, cost when keys, queue names and days of history that are not used any more lie behind? */
import { forgetPast, storePast } from '../../jobs/past.ts'
import { registerTask } from '../../jobs/stored-jobs.ts'
import { drainIdle } from '../../loads/drain-idle.ts'
import { JOBS_PER_SECOND } from '../../loads/enqueue.ts'
import { IDLE_CPU, IDLE_FIGURES, measureIdle } from '../../loads/idle.ts'
import { pace } from '../../loads/paced.ts'
import { COST_FIGURES, costOf } from '../../measure/cost.ts'
import { REDIS_MEMORY, redisMemory } from '../../measure/redis-memory.ts'
import type { Scenario } from '../scenario.ts'

/** Straight after, nothing is forgotten yet; later, the leader has forgotten what it forgets. */
const AGED_SIDES = ['straight after', 'later', 'fresh'] as const
const [STRAIGHT_AFTER, LATER] = AGED_SIDES
const TASK = 'noop'
const PER_KEY = 10
const STEADY_PER_SECOND = 1000
const STEADY_COST = { name: 'steady cost', unit: 'µs', better: 'lower', isHeadline: true } as const
const [DRAIN_COST, ...OTHER_COSTS] = COST_FIGURES

const aged = (id: string, way: string, peer: string): Scenario => ({
  id,
  question: `Q9 100,000 keys, 5,000 queue names and 30 days of history behind it, ${way}`,
  figures: [
    { ...IDLE_CPU, isHeadline: true },
    ...IDLE_FIGURES.filter(({ name }) => name !== IDLE_CPU.name),
    ...(DRAIN_COST ? [{ ...DRAIN_COST, isHeadline: true }] : []),
    ...OTHER_COSTS,
    JOBS_PER_SECOND,
    STEADY_COST,
    REDIS_MEMORY,
  ],
  load: 'stream',
  variants: AGED_SIDES.map(name => ({ name, peer, workload: { concurrencyPerKey: PER_KEY } })),
  async measure(setting) {
    const { past, agedIdleMs, fleetJobs, crowdMs } = setting.sizes
    await registerTask(setting.database, TASK, { concurrencyPerKey: PER_KEY })
    if (setting.side === STRAIGHT_AFTER || setting.side === LATER) await storePast(setting, TASK, past)
    if (setting.side === LATER) await forgetPast(setting)
    const memory = setting.redis ? { [REDIS_MEMORY.name]: await redisMemory(setting) } : {}
    const idle = await measureIdle(setting, 1, agedIdleMs)
    const drained = await drainIdle(setting, { processes: 1, workers: 1 }, fleetJobs)
    const steady = await pace(setting, STEADY_PER_SECOND, crowdMs)
    Object.assign(drained.figures, memory, idle, { [STEADY_COST.name]: costOf(steady) })
    return drained
  },
})

export const agedDirect = aged('aged-direct', 'direct mode', 'longshore-direct')
export const agedThroughRedis = aged('aged-redis', 'through Redis', 'longshore')
