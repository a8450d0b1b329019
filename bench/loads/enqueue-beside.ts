/** Owns the rate of bulk enqueues into an installation that holds something already. */

import type { Figure } from '../measure/measurement.ts'
import type { Setting } from '../measure/setting.ts'
import { fill } from './enqueue.ts'

export const ENQUEUE_RATE = {
  name: 'enqueue rate',
  unit: 'jobs/s',
  better: 'higher',
} as const satisfies Figure

const WIDTH = 4
const WARM = 4000

/** Throws unless each of them is stored. */
export async function enqueueBeside(setting: Setting, jobs: number): Promise<number> {
  const before = await setting.countUnfinished()
  const producer = await setting.peer.openProducer()
  try {
    await fill(producer, WARM, WIDTH)
    const startAt = performance.now()
    await fill(producer, jobs, WIDTH)
    const seconds = (performance.now() - startAt) / 1000
    const stored = (await setting.countUnfinished()) - before
    if (stored !== WARM + jobs) throw new Error(`${stored} jobs are stored, not ${WARM + jobs}`)
    return jobs / seconds
  } finally {
    await producer.close()
  }
}
