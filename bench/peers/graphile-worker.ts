/** graphile-worker, with its batching on and without; both with the best settings of a sweep. */
import { Logger, makeWorkerUtils, run, runMigrations } from 'graphile-worker'
import pg from 'pg'
import type { JobData } from '../jobs/job-data.ts'
import type { OpenPeer } from './peer.ts'
import { settingsOf, type Tuning } from './tuning.ts'

const PRODUCER_CONNECTIONS = 16

interface GraphileSettings extends Record<string, number> {
  readonly concurrentJobs: number
  readonly connections: number
  /** Jobs claimed ahead; 0: its default, no local queue. */
  readonly localQueue: number
  /** Completions are collected for so long; -1: its default, one by one. */
  readonly batchDelayMs: number
}

const SOURCE = 'worker.graphile.org, "Performance" and "Local queue"'

const oneByOne = (concurrentJobs: number, connections: number): GraphileSettings => ({
  concurrentJobs,
  connections,
  localQueue: 0,
  batchDelayMs: -1,
})

const batched = (concurrentJobs: number, localQueue: number, batchDelayMs: number): GraphileSettings => ({
  concurrentJobs,
  connections: 10,
  localQueue,
  batchDelayMs,
})

export const GRAPHILE_BATCHED: Tuning<GraphileSettings> = {
  used: batched(100, 2000, 20),
  candidates: [
    batched(100, 500, 20),
    batched(100, 2000, 20),
    batched(100, 5000, 20),
    batched(200, 5000, 20),
    batched(100, 10_000, 20),
  ],
  sweepJobs: 60_000,
  source: SOURCE,
  found:
    'local queue of 2,000 35,062 jobs/s, of 500 34,901, of 5,000 25,739, of 10,000 15,420: what is fetched ahead delays the first job',
}

/** As it comes, but for the number of jobs at once and of connections, which everybody sets. */
export const GRAPHILE_DEFAULT: Tuning<GraphileSettings> = {
  used: oneByOne(100, 10),
  candidates: [oneByOne(10, 10), oneByOne(24, 10), oneByOne(24, 26), oneByOne(50, 20), oneByOne(100, 10)],
  sweepJobs: 8000,
  source: SOURCE,
  found: '100 at once on 10 connections 2,750 jobs/s; 24 on 10 2,546; 24 on 26 2,369: all but level',
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

const openWith =
  (tuning: Tuning<GraphileSettings>): OpenPeer =>
  async surroundings => {
    const { postgres } = surroundings
    const { concurrentJobs, connections, localQueue, batchDelayMs } = settingsOf(tuning, surroundings)
    return {
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
        const pgPool = openPool(postgres, connections)
        const runner = await run({
          pgPool,
          logger,
          noHandleSignals: true,
          taskList: { noop: async payload => onJob(payload as JobData) },
          preset: {
            worker: {
              concurrentJobs,
              maxPoolSize: connections,
              ...(localQueue > 0 ? { localQueue: { size: localQueue } } : {}),
              ...(batchDelayMs < 0
                ? {}
                : { completeJobBatchDelay: batchDelayMs, failJobBatchDelay: batchDelayMs }),
            },
          },
        })
        return {
          async stop() {
            await runner.stop()
            await pgPool.end()
          },
        }
      },
      countUnfinished: 'select count(*)::int as n from graphile_worker._private_jobs',
    }
  }

export const openGraphileBatched = openWith(GRAPHILE_BATCHED)
export const openGraphileDefault = openWith(GRAPHILE_DEFAULT)
