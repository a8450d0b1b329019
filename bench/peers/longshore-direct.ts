/** longshore without Redis, all settings at their defaults. */
import type { JobData } from '../job-data.ts'
import type { OpenPeer } from './peer.ts'

type Longshore = typeof import('../../src/index.ts')

export const openLongshoreDirect: OpenPeer = async surroundings => {
  const longshore: Longshore = await import(`${surroundings.longshore}/dist/index.js`)
  const { postgres } = surroundings
  const noop = longshore.defineTask<JobData>({ name: 'noop' })
  return {
    async install() {
      await longshore.migrate({ postgres })
    },
    async openProducer() {
      const producer = longshore.createProducer({ postgres })
      return {
        addOne: data => producer.enqueue(noop, data),
        addMany: list => producer.enqueueMany(noop, list),
        close: () => producer.close(),
      }
    },
    async startWorker(onJob) {
      const worker = longshore.createWorker({ postgres, handlers: [noop.handle(job => onJob(job.payload))] })
      await worker.start()
      return worker
    },
    countUnfinished: 'select count(*)::int as n from longshore.jobs',
  }
}
