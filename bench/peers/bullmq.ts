/** BullMQ on Redis with the best settings of a sweep; under light load its default worker. */
import { Queue, Worker } from 'bullmq'
import type { JobData } from '../jobs/job-data.ts'
import { type OpenPeer, redisOf } from './peer.ts'
import { settingsOf, type Tuning } from './tuning.ts'

const QUEUE = 'bench'

interface BullmqSettings extends Record<string, number> {
  /** Jobs at once in one `Worker`. */
  readonly concurrency: number
  /** `Worker`s in one process. */
  readonly workers: number
}

export const BULLMQ: Tuning<BullmqSettings> = {
  used: { concurrency: 50, workers: 1 },
  candidates: [
    { concurrency: 10, workers: 1 },
    { concurrency: 50, workers: 1 },
    { concurrency: 100, workers: 1 },
    { concurrency: 200, workers: 1 },
    { concurrency: 500, workers: 1 },
    { concurrency: 50, workers: 2 },
    { concurrency: 25, workers: 4 },
  ],
  sweepJobs: 30_000,
  source:
    'docs.bullmq.io, "Concurrency": many jobs at once where they wait for others, the rest is to be tried',
  found:
    '50 and 100 at once are level (16,747 and 17,048 jobs/s); 10 at once 11,432, 200 14,340; more workers in a process gain nothing',
}

export const openBullmq: OpenPeer = async surroundings => {
  const connection = { url: redisOf(surroundings), maxRetriesPerRequest: null }
  const { concurrency, workers } = settingsOf(BULLMQ, surroundings)
  const startOne = async (onJob: (data: JobData) => void) => {
    const worker = new Worker<JobData>(QUEUE, async job => onJob(job.data), {
      connection,
      ...(surroundings.load === 'light' ? {} : { concurrency }),
    })
    worker.on('error', error => console.error('bullmq, worker:', error.message))
    await worker.waitUntilReady()
    return worker
  }
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
      const started = await Promise.all(Array.from({ length: workers }, () => startOne(onJob)))
      return { stop: () => Promise.all(started.map(worker => worker.close())) }
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
