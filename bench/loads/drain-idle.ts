/**
 * Owns the measurement of a drain by workers that wait already, registered, connected and warm: the jobs appear all at once.
 * In the other order a measurement of many workers would be one of their start: the first would have done all before the
 * last began.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { nowUs } from '../jobs/clock.ts'
import { jobDataList } from '../jobs/job-data.ts'
import { checkTallies } from '../jobs/tally.ts'
import { costsOf } from '../measure/cost.ts'
import type { Measurement } from '../measure/measurement.ts'
import type { Setting } from '../measure/setting.ts'
import { beginStretch } from '../measure/timed-stretch.ts'
import type { PeerProducer } from '../peers/peer.ts'
import { JOBS_PER_SECOND } from './enqueue.ts'
import { untilServing } from './serving.ts'

const LIMIT_MS = 120_000
/** Drains before the one that counts: every connection has to learn its statements, which takes longer than many a job. */
const MOST_WARM = 5

export interface Crew {
  readonly processes: number
  /** Workers in each. */
  readonly workers: number
}

export async function drainIdle(setting: Setting, crew: Crew, jobs: number): Promise<Measurement> {
  const producer = await setting.peer.openProducer()
  try {
    return await drainWith(producer, setting, crew, jobs)
  } finally {
    await producer.close()
  }
}

async function drainWith(producer: PeerProducer, setting: Setting, crew: Crew, jobs: number) {
  const total = (1 + MOST_WARM) * jobs
  const processes = Array.from({ length: crew.processes }, () =>
    setting.forkWorker(total, jobs, { workers: crew.workers }),
  )
  await Promise.all(processes.map(one => one.loaded))
  for (const one of processes) one.begin()
  await Promise.all(processes.map(one => one.ready))
  if (setting.relay) await untilServing(setting, crew.processes * crew.workers)

  const broken = Promise.race(processes.map(one => one.broken))
  broken.catch(() => undefined) // told to those that wait for it
  const ran = () => processes.reduce((sum, one) => sum + one.ran, 0)
  const untilNoneIsLeft = async (expected: number) => {
    const giveUpAt = performance.now() + LIMIT_MS
    while (ran() < expected || (await setting.countUnfinished()) > 0) {
      if (performance.now() > giveUpAt)
        throw new Error(`${ran()} of ${expected} jobs ran in ${LIMIT_MS / 1000} s`)
      await Promise.race([pause(5), broken])
    }
  }
  /** Jobs numbered from `first` on; returns what lets the workers see them. */
  const stage = (first: number) => {
    if (!producer.stage) throw new Error(`${setting.side} cannot let jobs appear at once`)
    return producer.stage(jobDataList(first, jobs))
  }

  let done = 0
  for (let n = 1; n <= MOST_WARM && !(n > 1 && processes.every(one => one.ran > 0)); n++) {
    const show = await stage(n * jobs)
    await show()
    done += jobs
    await untilNoneIsLeft(done)
  }
  const cold = processes.filter(one => one.ran === 0).length
  if (cold > 0) throw new Error(`${cold} of ${crew.processes} worker processes never got a job`)
  await setting.database.settle()

  const show = await stage(0)
  const stretch = await beginStretch(
    setting,
    processes.map(one => one.pid),
  )
  const startUs = nowUs()
  await show()
  await untilNoneIsLeft(done + jobs)
  const endUs = nowUs()
  const { cores, seconds, writes } = await stretch.end()

  const reports = await Promise.all(processes.map(one => one.finish()))
  checkTallies(done + jobs, reports)
  const measured = { jobs, cores, seconds, writes }
  const figures = { [JOBS_PER_SECOND.name]: jobs / ((endUs - startUs) / 1e6), ...costsOf(measured) }
  return { ...measured, figures }
}
