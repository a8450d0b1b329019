/**
 * pg-boss with large batches, which it completes in one statement each, with the best settings of a sweep. Paced jobs
 * are announced by its notify; that costs its producers something, so a backlog is stored and drained without it.
 */
import { PgBoss } from 'pg-boss'
import type { JobData } from '../jobs/job-data.ts'
import type { OpenPeer } from './peer.ts'
import { settingsOf, type Tuning } from './tuning.ts'

const QUEUE = 'bench'
const PRODUCER_CONNECTIONS = 16
const WORKER_CONNECTIONS = 10
const POLL_SECONDS = 0.5

interface PgBossSettings extends Record<string, number> {
  readonly batch: number
  readonly batchesAtOnce: number
}

export const PG_BOSS: Tuning<PgBossSettings> = {
  used: { batch: 2000, batchesAtOnce: 4 },
  candidates: [
    { batch: 500, batchesAtOnce: 4 },
    { batch: 1000, batchesAtOnce: 4 },
    { batch: 2000, batchesAtOnce: 2 },
    { batch: 2000, batchesAtOnce: 4 },
    { batch: 5000, batchesAtOnce: 4 },
  ],
  sweepJobs: 60_000,
  source: 'its documentation of `work`: batchSize, localConcurrency, burstWhenBatchFull',
  found:
    '4 batches of 500, 1,000 and 2,000 and 2 of 2,000 are level (24,569, 23,459, 24,168, 24,129 jobs/s); 4 of 5,000 22,864',
}

export const openPgBoss: OpenPeer = async surroundings => {
  const { postgres, load } = surroundings
  const { batch, batchesAtOnce } = settingsOf(PG_BOSS, surroundings)
  const isPaced = load !== 'backlog'
  const start = async (max: number, useListenNotify = false) => {
    const boss = new PgBoss({ connectionString: postgres, max, schedule: false, useListenNotify })
    boss.on('error', error => console.error('pg-boss:', error.message))
    await boss.start()
    return { boss, stop: () => boss.stop({ graceful: false }) }
  }
  return {
    async install() {
      const { boss, stop } = await start(2)
      await boss.createQueue(QUEUE, { notify: isPaced })
      await stop()
    },
    async openProducer() {
      const { boss, stop } = await start(PRODUCER_CONNECTIONS)
      return {
        addOne: data => boss.send(QUEUE, data),
        addMany: list =>
          boss.insert(
            QUEUE,
            list.map(data => ({ data })),
          ),
        close: stop,
      }
    },
    async startWorker(onJob) {
      const { boss, stop } = await start(WORKER_CONNECTIONS, isPaced)
      await boss.work<JobData>(
        QUEUE,
        {
          batchSize: batch,
          localConcurrency: isPaced ? 1 : batchesAtOnce,
          pollingIntervalSeconds: POLL_SECONDS,
          burstWhenBatchFull: true,
        },
        async jobs => {
          for (const job of jobs) onJob(job.data)
        },
      )
      return { stop }
    },
    countUnfinished: `select count(*)::int as n from pgboss.job where name = '${QUEUE}' and state < 'completed'`,
  }
}
