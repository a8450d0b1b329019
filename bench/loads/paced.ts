/**
 * Owns the measurement of latency: jobs are enqueued one by one at a steady rate, none waiting for another, and one
 * worker process tells when their handlers began.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { jobData, jobDataList } from '../jobs/job-data.ts'
import { checkTallies } from '../jobs/tally.ts'
import type { Figure, Measurement } from '../measure/measurement.ts'
import type { Setting } from '../measure/setting.ts'
import { quantile } from '../measure/statistics.ts'
import { beginStretch } from '../measure/timed-stretch.ts'
import type { PeerProducer } from '../peers/peer.ts'
import type { Crowd } from '../processes/worker-process.ts'
import { keepInFlight } from './in-flight.ts'
import { untilServing } from './serving.ts'

export const PACED_FIGURES = [
  { name: 'start p50', unit: 'ms', better: 'lower', isHeadline: true },
  { name: 'start p95', unit: 'ms', better: 'lower' },
  { name: 'start p99', unit: 'ms', better: 'lower', isHeadline: true },
  { name: 'enqueue p50', unit: 'ms', better: 'lower' },
  { name: 'enqueue p99', unit: 'ms', better: 'lower' },
  { name: 'backlog', unit: 'jobs' },
] as const satisfies Figure[]

/** A queue in use has been planned for, compiled and connected: these run before the clock starts. */
const WARM_BULK = 4000
const WARM_SINGLE = 200
/** For each worker of a crowd: every connection has to learn its statements. */
const WARM_EACH = 30
const IDLE_MS = 1000
const LIMIT_MS = 60_000

export async function pace(
  setting: Setting,
  perSecond: number,
  forMs: number,
  crowd?: Crowd,
): Promise<Measurement> {
  const jobs = Math.round((perSecond * forMs) / 1000)
  const producer = await setting.peer.openProducer()
  try {
    return await paceWith(producer, setting, perSecond, jobs, crowd)
  } finally {
    await producer.close()
  }
}

async function paceWith(
  producer: PeerProducer,
  setting: Setting,
  perSecond: number,
  jobs: number,
  crowd: Crowd | undefined,
): Promise<Measurement> {
  const { workers = 1 } = crowd ?? {}
  const singles = Math.max(WARM_SINGLE, WARM_EACH * workers)
  const total = jobs + WARM_BULK + singles
  const worker = setting.forkWorker(total, jobs, crowd)
  await worker.loaded
  worker.begin()
  await worker.ready
  if (crowd && setting.relay) await untilServing(setting, workers)
  const untilRan = async (count: number) => {
    const giveUpAt = performance.now() + LIMIT_MS
    while (worker.ran < count && performance.now() < giveUpAt) await Promise.race([pause(20), worker.broken])
  }

  await producer.addMany(jobDataList(jobs, WARM_BULK))
  await keepInFlight(
    Math.max(8, workers),
    i => i < singles,
    i => producer.addOne(jobData(jobs + WARM_BULK + i)),
  )
  await untilRan(total - jobs)
  await setting.database.settle()
  await pause(IDLE_MS)

  const stretch = await beginStretch(setting, [worker.pid])
  const enqueueMs: number[] = []
  const adds: Promise<unknown>[] = []
  const startAt = performance.now()
  for (let i = 0; i < jobs; ) {
    const due = Math.min(jobs, Math.floor(((performance.now() - startAt) * perSecond) / 1000) + 1)
    for (; i < due; i++) {
      const calledAt = performance.now()
      adds.push(producer.addOne(jobData(i)).then(() => enqueueMs.push(performance.now() - calledAt)))
    }
    await pause(Math.max(1, startAt + (i * 1000) / perSecond - performance.now()))
  }
  const backlog = total - worker.ran
  const { cores, seconds, writes } = await stretch.end()

  await Promise.all(adds)
  await untilRan(total)
  const report = await worker.finish()
  checkTallies(total, [report])
  const startMs = report.latenciesUs.map(us => us / 1000)
  const figures = {
    'start p50': quantile(startMs, 0.5),
    'start p95': quantile(startMs, 0.95),
    'start p99': quantile(startMs, 0.99),
    'enqueue p50': quantile(enqueueMs, 0.5),
    'enqueue p99': quantile(enqueueMs, 0.99),
    // The worker's count is up to 20 ms old: that many jobs are no backlog.
    backlog: Math.max(0, backlog - Math.ceil(perSecond * 0.03)),
  }
  return { jobs, figures, cores, seconds, writes }
}
