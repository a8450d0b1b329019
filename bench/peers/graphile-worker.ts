/** graphile-worker with its batching on, the fastest settings we found for it (its default drains 13 times slower). */
import { Logger, makeWorkerUtils, run, runMigrations } from 'graphile-worker'
import pg from 'pg'
import type { JobData } from '../job-data.ts'
import type { OpenPeer } from './peer.ts'

const PRODUCER_CONNECTIONS = 16
const WORKER_CONNECTIONS = 10
const BATCHED = {
  concurrentJobs: 100,
  maxPoolSize: WORKER_CONNECTIONS,
  localQueue: { size: 2000 },
  completeJobBatchDelay: 20,
  failJobBatchDelay: 20,
}

const logger = new Logger(() => (level, message) => {
  if (level === 'error') console.error('graphile-worker:', message)
})

/** It asks for error listeners on the pool and on each of its clients. */
function openPool(connectionString: string, max: number): pg.Pool {
  const pool = new pg.Pool({ connectionString, max })
  // Once it has ended, the database may be dropped before its connections are gone.
  const tell = (error: Error) => pool.ending || console.error('graphile-worker, pool:', error.message)
  pool.on('error', tell)
  pool.on('connect', client => client.on('error', tell))
  return pool
}

export const openGraphileWorker: OpenPeer = async ({ postgres }) => ({
  async install() {
    await runMigrations({ connectionString: postgres, logger })
  },
  async openProducer() {
    const pgPool = openPool(postgres, PRODUCER_CONNECTIONS)
    const queue = await makeWorkerUtils({ pgPool, logger })
    return {
      addOne: data => queue.addJob('noop', data),
      addMany: list => queue.addJobs(list.map(payload => ({ identifier: 'noop', payload }))),
      async close() {
        await queue.release()
        await pgPool.end()
      },
    }
  },
  async startWorker(onJob) {
    const pgPool = openPool(postgres, WORKER_CONNECTIONS)
    const runner = await run({
      pgPool,
      logger,
      noHandleSignals: true,
      taskList: { noop: async payload => onJob(payload as JobData) },
      preset: { worker: BATCHED },
    })
    return {
      async stop() {
        await runner.stop()
        await pgPool.end()
      },
    }
  },
  countUnfinished: 'select count(*)::int as n from graphile_worker._private_jobs',
})
