/** BullMQ on its own Postgres backend with the best settings of a sweep; under light load its default worker. */
import { createPostgresBackend, Queue, Worker } from 'bullmq'
import type { JobData } from '../jobs/job-data.ts'
import type { OpenPeer } from './peer.ts'
import { settingsOf, type Tuning } from './tuning.ts'

const QUEUE = 'bench'
const PRODUCER_CONNECTIONS = 16

interface BullmqPostgresSettings extends Record<string, number> {
  readonly concurrency: number
  readonly connections: number
}

export const BULLMQ_POSTGRES: Tuning<BullmqPostgresSettings> = {
  used: { concurrency: 100, connections: 20 },
  candidates: [
    { concurrency: 10, connections: 4 },
    { concurrency: 50, connections: 4 },
    { concurrency: 50, connections: 10 },
    { concurrency: 100, connections: 10 },
    { concurrency: 100, connections: 20 },
    { concurrency: 200, connections: 10 },
  ],
  sweepJobs: 5000,
  source: 'docs.bullmq.io, "Concurrency"; connections from the default of 10 of its pool, up and down',
  found: '100 at once on 20 connections 1,628 jobs/s; 10 on 4 1,594; 50 on 10 1,471: all but level',
}

export const openBullmqPostgres: OpenPeer = async surroundings => {
  const { concurrency, connections } = settingsOf(BULLMQ_POSTGRES, surroundings)
  const connection = (max: number) => ({ connectionString: surroundings.postgres, migrate: true, max })
  const openQueue = async (max: number) => {
    const queue = new Queue(QUEUE, { connection: connection(max) }, createPostgresBackend)
    queue.on('error', error => console.error('bullmq-postgres, queue:', error.message))
    await queue.waitUntilReady()
    return queue
  }
  return {
    async install() {
      const queue = await openQueue(1)
      await queue.close()
    },
    async openProducer() {
      const queue = await openQueue(PRODUCER_CONNECTIONS)
      return {
        addOne: data => queue.add('noop', data),
        addMany: list => queue.addBulk(list.map(data => ({ name: 'noop', data }))),
        close: () => queue.close(),
      }
    },
    async startWorker(onJob) {
      const worker = new Worker(
        QUEUE,
        async job => onJob(job.data as JobData),
        {
          connection: connection(connections),
          ...(surroundings.load === 'light' ? {} : { concurrency }),
        },
        createPostgresBackend,
      )
      worker.on('error', error => console.error('bullmq-postgres, worker:', error.message))
      await worker.waitUntilReady()
      return { stop: () => worker.close() }
    },
    countUnfinished: `select count(*)::int as n from bullmq.job
      where queue = '${QUEUE}' and state not in ('completed', 'failed')`,
  }
}
