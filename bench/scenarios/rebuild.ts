/**
 * P14: how soon is an emptied Redis of use again, with very many ready jobs? A worker drains them all the time: first through
 * Redis, then straight from Postgres, then through Redis again.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { nowUs } from '../clock.ts'
import { storeNumberedJobs } from '../numbered-jobs.ts'
import { REDIS_MEMORY, redisMemory } from '../redis-memory.ts'
import { emptyRedis, until, untilFull } from '../refill.ts'
import type { Scenario } from '../scenario.ts'
import { registerTask } from '../stored-jobs.ts'
import { checkTallies } from '../tally.ts'
import { beginStretch } from '../timed-stretch.ts'

const FIRST = { name: 'first job', unit: 'ms', better: 'lower', isHeadline: true } as const
const FULL = { name: 'window full', unit: 'ms', better: 'lower', isHeadline: true } as const
const GAP = { name: 'longest pause', unit: 'ms', better: 'lower', isHeadline: true } as const
const USUAL_GAP = { name: 'longest pause otherwise', unit: 'ms', better: 'lower' } as const
/** Run before Redis is emptied, so that everything is warm. */
const WARM_SHARE = 0.1
const LIMIT_MS = 240_000

const SIDES: Readonly<Record<string, { factor: number; lanes: number }>> = {
  'one lane': { factor: 1, lanes: 1 },
  'five lanes': { factor: 1, lanes: 5 },
  'a tenth of the jobs': { factor: 0.1, lanes: 5 },
}

export const rebuild: Scenario = {
  id: 'rebuild',
  question: 'P14 Redis emptied while 1,000,000 ready jobs are drained',
  figures: [FIRST, FULL, GAP, USUAL_GAP, REDIS_MEMORY],
  variants: Object.entries(SIDES).map(([name, { lanes }]) => ({
    name,
    peer: 'longshore',
    workload: { tasks: lanes },
  })),
  async measure(setting) {
    const { database, sizes, redis } = setting
    const { factor = 1, lanes = 1 } = SIDES[setting.side] ?? {}
    const jobs = Math.round(sizes.rebuildJobs * factor)
    const tasks = Array.from({ length: lanes }, (_, n) => (n === 0 ? 'noop' : `noop-${n}`))
    for (const task of tasks) await registerTask(database, task)
    await storeNumberedJobs(database, jobs, { tasks })
    const worker = setting.forkWorker(jobs, jobs)
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
    // Only a worker's take makes this key, when it gets jobs.
    await until('a job is taken', async () => ((await redis?.client.keys('*taken')) ?? []).length > 0)
    const firstUs = nowUs()
    const fullUs = await full
    const { cores, seconds } = await stretch.end()
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
    }
  },
}

/** Between the beginnings of jobs that follow each other, with the later one's time. */
function gapsOf(beginningsUs: Float64Array): { atUs: number; us: number }[] {
  const sorted = beginningsUs.slice().sort()
  return Array.from(sorted.subarray(1), (atUs, i) => ({ atUs, us: atUs - (sorted[i] ?? atUs) }))
}
