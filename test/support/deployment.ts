/** Producers and workers of one test: taken down after it whatever happens, then their jobs are removed. */
import { afterEach } from 'vitest'
import {
  createProducer,
  createWorker,
  type Producer,
  type ProducerOptions,
  type Worker,
  type WorkerOptions,
} from '../../src/index.ts'
import type { TestDatabase } from './database.ts'

export interface Deployment {
  producer(options?: ProducerOptions): Producer
  /** Started. Stopped after the test, with no patience for handlers. */
  worker(options: WorkerOptions): Promise<Worker>
}

export function useDeployment(database: TestDatabase): Deployment {
  const producers: Producer[] = []
  const workers: Worker[] = []

  afterEach(async () => {
    await Promise.all(workers.splice(0).map(worker => worker.stop({ deadline: 0 })))
    await Promise.all(producers.splice(0).map(producer => producer.close()))
    // A test that failed may have left a transaction open.
    await database.rows("set lock_timeout = '20s'")
    await database.rows(
      `truncate longshore.jobs, longshore.finished_jobs, longshore.workers, longshore.awaited, longshore.tasks,
         longshore.limits, longshore.slot_groups, longshore.lane_heads`,
    )
  })

  return {
    producer(options = {}) {
      const producer = createProducer({ postgres: database.url, ...options })
      producers.push(producer)
      return producer
    },
    async worker(options) {
      const worker = createWorker({ postgres: database.url, abortGrace: 50, ...options })
      workers.push(worker)
      await worker.start()
      return worker
    },
  }
}
