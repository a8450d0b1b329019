/**
 * pg-boss with large batches, which it completes in one statement each, the fastest settings we found for it. Paced jobs
 * are announced by its notify; that costs its producers something, so a backlog is stored and drained without it.
 */
import { PgBoss } from 'pg-boss'
import type { JobData } from '../job-data.ts'
import type { OpenPeer } from './peer.ts'

const QUEUE = 'bench'
const PRODUCER_CONNECTIONS = 16
const WORKER_CONNECTIONS = 10
const BATCH = 2000
const BATCHES_AT_ONCE = 4
const POLL_SECONDS = 0.5

export const openPgBoss: OpenPeer = async ({ postgres, load }) => {
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
          batchSize: BATCH,
          localConcurrency: isPaced ? 1 : BATCHES_AT_ONCE,
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
