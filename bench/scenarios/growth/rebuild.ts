/**
 * P14: how soon is an emptied Redis of use again, with very many ready jobs? A crowd of workers drains them all the time: first
 * through Redis, then directly from Postgres, then through Redis again.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { nowUs } from '../../jobs/clock.ts'
import { storeNumberedJobs } from '../../jobs/numbered-jobs.ts'
import { registerTask } from '../../jobs/stored-jobs.ts'
import { checkTallies } from '../../jobs/tally.ts'
import { THROUGH_REDIS } from '../../loads/drain-first.ts'
import { countTaken, emptyRedis, until, untilFull } from '../../loads/refill.ts'
import { REDIS_MEMORY, redisMemory } from '../../measure/redis-memory.ts'
import { beginStretch } from '../../measure/timed-stretch.ts'
import type { Scenario } from '../scenario.ts'

const FIRST = { name: 'first job', unit: 'ms', better: 'lower', isHeadline: true } as const
const FULL = { name: 'window full', unit: 'ms', better: 'lower', isHeadline: true } as const
const GAP = { name: 'longest pause', unit: 'ms', better: 'lower', isHeadline: true } as const
const USUAL_GAP = { name: 'longest pause otherwise', unit: 'ms', better: 'lower' } as const
/** Run before Redis is emptied, so that everything is warm. */
const WARM_SHARE = 0.1
const LIMIT_MS = 240_000

const LANES = 5
const FACTORS: Readonly<Record<string, number>> = { 'all jobs': 1, 'a tenth of the jobs': 0.1 }

export const rebuild: Scenario = {
  id: 'rebuild',
  question: 'P14 Redis emptied while 1,000,000 ready jobs are drained',
  figures: [FIRST, FULL, GAP, USUAL_GAP, REDIS_MEMORY],
  variants: Object.keys(FACTORS).map(name => ({ name, peer: 'longshore', workload: { tasks: LANES } })),
  async measure(setting) {
    const { database, sizes, redis } = setting
    const jobs = Math.round(sizes.rebuildJobs * (FACTORS[setting.side] ?? 1))
    const tasks = Array.from({ length: LANES }, (_, n) => (n === 0 ? 'noop' : `noop-${n}`))
    for (const task of tasks) await registerTask(database, task)
    await storeNumberedJobs(database, jobs, { tasks })
    const worker = setting.forkWorker(jobs, jobs, { workers: THROUGH_REDIS })
    await worker.loaded
    await database.settle()
    await untilFull(setting, (await emptyRedis(setting)).isNew)

    worker.begin()
    await until('a tenth has run', () => worker.ran > jobs * WARM_SHARE)
    const stretch = await beginStretch(setting, [worker.pid])
    const ranBefore = worker.ran
    const emptiedUs = nowUs()
    const { isNew } = await emptyRedis(setting)
    const full = untilFull(setting, isNew).then(() => nowUs())
    await until('a job is taken', async () => (await countTaken(redis)) > 0)
    const firstUs = nowUs()
    const fullUs = await full
    const { cores, seconds, writes } = await stretch.end()
    const ran = worker.ran - ranBefore
    const memory = await redisMemory(setting)

    const giveUpAt = performance.now() + LIMIT_MS
    while (worker.ran < jobs && performance.now() < giveUpAt) await Promise.race([pause(20), worker.broken])
    const report = await worker.finish()
    checkTallies(jobs, [report])
    const endUs = Math.max(firstUs, fullUs)
    const gaps = gapsOf(report.latenciesUs)
    const longest = (isMeant: (atUs: number) => boolean) =>
      gaps.reduce((most, { atUs, us }) => (isMeant(atUs) ? Math.max(most, us) : most), 0) / 1000
    const isMeanwhile = (atUs: number) => atUs > emptiedUs && atUs < endUs
    return {
      jobs: ran,
      figures: {
        [FIRST.name]: (firstUs - emptiedUs) / 1000,
        [FULL.name]: (fullUs - emptiedUs) / 1000,
        [GAP.name]: longest(isMeanwhile),
        [USUAL_GAP.name]: longest(atUs => !isMeanwhile(atUs)),
        [REDIS_MEMORY.name]: memory,
      },
      cores,
      seconds,
      writes,
    }
  },
}

/** Between the beginnings of jobs that follow each other, with the later one's time. */
function gapsOf(beginningsUs: Float64Array): { atUs: number; us: number }[] {
  const sorted = beginningsUs.slice().sort()
  return Array.from(sorted.subarray(1), (atUs, i) => ({ atUs, us: atUs - (sorted[i] ?? atUs) }))
}
