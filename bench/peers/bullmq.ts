/** BullMQ on Redis, 50 jobs at once, the fastest setting we found for it; under light load its default worker. */
import { Queue, Worker } from 'bullmq'
import type { JobData } from '../job-data.ts'
import { type OpenPeer, redisOf } from './peer.ts'

const QUEUE = 'bench'
const JOBS_AT_ONCE = 50

export const openBullmq: OpenPeer = async surroundings => {
  const connection = { url: redisOf(surroundings), maxRetriesPerRequest: null }
  return {
    async install() {}, // it needs nothing but an empty Redis
    async openProducer() {
      const queue = new Queue<JobData>(QUEUE, { connection })
      queue.on('error', error => console.error('bullmq, queue:', error.message))
      await queue.waitUntilReady()
      return {
        addOne: data => queue.add('noop', data),
        addMany: list => queue.addBulk(list.map(data => ({ name: 'noop', data }))),
        close: () => queue.close(),
      }
    },
    async startWorker(onJob) {
      const worker = new Worker<JobData>(QUEUE, async job => onJob(job.data), {
        connection,
        ...(surroundings.load === 'light' ? {} : { concurrency: JOBS_AT_ONCE }),
      })
      worker.on('error', error => console.error('bullmq, worker:', error.message))
      await worker.waitUntilReady()
      return { stop: () => worker.close() }
    },
    async countUnfinished(redis) {
      const key = (state: string) => `bull:${QUEUE}:${state}`
      const counts = await Promise.all([
        redis.llen(key('wait')),
        redis.llen(key('active')),
        redis.zcard(key('prioritized')),
        redis.zcard(key('delayed')),
      ])
      return counts.reduce((sum, count) => sum + count)
    },
  }
}
