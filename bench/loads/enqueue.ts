/** Owns the two ways of measuring a producer: single enqueues for a while, and a number of jobs in bulk. */

import { jobData, jobDataList } from '../jobs/job-data.ts'
import type { Measurement } from '../measure/measurement.ts'
import type { Setting } from '../measure/setting.ts'
import { BULK } from '../measure/sizes.ts'
import { beginStretch } from '../measure/timed-stretch.ts'
import type { PeerProducer } from '../peers/peer.ts'
import { keepInFlight } from './in-flight.ts'

export const JOBS_PER_SECOND = { name: 'rate', unit: 'jobs/s', better: 'higher' } as const

const WARM_SINGLE = 1000
const WARM_BULK = 2000

/** For a time, not a number: the peers differ by a factor of ten, and all shall be warm. */
export async function enqueueSingly(setting: Setting, width: number): Promise<Measurement> {
  const producer = await setting.peer.openProducer()
  try {
    await keepInFlight(
      width,
      i => i < WARM_SINGLE,
      i => producer.addOne(jobData(i)),
    )
    await setting.database.settle()
    const stretch = await beginStretch(setting, [])
    const endAt = performance.now() + setting.sizes.enqueueMs
    const jobs = await keepInFlight(
      width,
      () => performance.now() < endAt,
      i => producer.addOne(jobData(WARM_SINGLE + i)),
    )
    const { cores, seconds, writes } = await stretch.end()
    await checkStored(setting, WARM_SINGLE + jobs)
    return { jobs, figures: { [JOBS_PER_SECOND.name]: jobs / seconds }, cores, seconds, writes }
  } finally {
    await producer.close()
  }
}

export async function enqueueInBulk(setting: Setting, width: number): Promise<Measurement> {
  const jobs = setting.sizes.bulkJobs
  const producer = await setting.peer.openProducer()
  try {
    await fill(producer, WARM_BULK, width)
    await setting.database.settle()
    const stretch = await beginStretch(setting, [])
    await fill(producer, jobs, width)
    const { cores, seconds, writes } = await stretch.end()
    await checkStored(setting, WARM_BULK + jobs)
    return { jobs, figures: { [JOBS_PER_SECOND.name]: jobs / seconds }, cores, seconds, writes }
  } finally {
    await producer.close()
  }
}

/** Jobs 0 to `jobs` - 1, a thousand a call. */
export async function fill(producer: PeerProducer, jobs: number, width: number): Promise<void> {
  await keepInFlight(
    width,
    i => i * BULK < jobs,
    i => producer.addMany(jobDataList(i * BULK, Math.min(BULK, jobs - i * BULK))),
  )
}

async function checkStored(setting: Setting, expected: number): Promise<void> {
  const stored = await setting.countUnfinished()
  if (stored !== expected) throw new Error(`${stored} of ${expected} jobs are stored`)
}
