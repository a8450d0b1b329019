/**
 * Owns hints: telling Redis of jobs that a commit has just made ready, ahead of the relay. Nobody waits for one, and none is
 * ever needed: when there is no connection, or one is under way already, it is left out.
 */
import type { ReadyJob } from '../job/ready-job.ts'
import { messageOf } from '../job/stored-error.ts'
import type { Logger } from '../runtime/logger.ts'
import { openRedis, type RedisStore } from './open-redis.ts'
import { type QueueIndex, queueIndex } from './queue-index.ts'
import type { RedisConfig } from './redis-config.ts'

export interface Hints {
  give(queue: string, jobs: readonly ReadyJob[]): void
  /** A hint of so many jobs would most likely arrive: then the relay need not be woken for them. */
  isPossible(jobs: number): boolean
  close(): void
}

/** More than this is load, and the relay is awake anyway. */
const MOST_JOBS = 100
const IN_FLIGHT = 16

export function createHints(
  store: Pick<RedisStore, 'evalsha' | 'eval' | 'isConnected'>,
  deployment: string,
  logger: Logger,
): Hints['give'] {
  const indexes = new Map<string, QueueIndex>()
  let underWay = 0
  return (queue, jobs) => {
    if (jobs.length === 0 || jobs.length > MOST_JOBS || underWay >= IN_FLIGHT || !store.isConnected()) return
    const index = indexes.get(queue) ?? queueIndex(store, deployment, queue)
    indexes.set(queue, index)
    underWay++
    index
      .hint(jobs)
      .catch(error => logger.debug({ reason: messageOf(error) }, 'a hint was lost'))
      .finally(() => underWay--)
  }
}

/** With a connection of its own. */
export function openHints(config: RedisConfig, deployment: string, logger: Logger): Hints {
  const store = openRedis(config, error => logger.info({ err: error }, 'Redis'))
  const give = createHints(store, deployment, logger)
  return { give, isPossible: jobs => jobs <= MOST_JOBS && store.isConnected(), close: () => store.close() }
}
