/**
 * Owns hints: telling Redis of jobs that a commit has just made ready, ahead of the relay. Nobody waits for one, and none is
 * ever needed: when there is no connection, it is left out.
 */
import type { ReadyJob } from '../job/ready-job.ts'
import type { Logger } from '../runtime/logger.ts'
import { openRedis, type RedisStore } from './open-redis.ts'
import { type QueueIndex, queueIndex } from './queue-index.ts'
import type { RedisConfig } from './redis-config.ts'
import { tellOfRedis } from './redis-trouble.ts'

export interface Hints {
  give(queue: string, jobs: readonly ReadyJob[]): void
  /** A hint of so many jobs would most likely arrive: then the relay need not be woken for them. */
  isPossible(jobs: number): boolean
  close(): void
}

/** More than this is load, and the relay is awake anyway. */
const MOST_JOBS = 100
/** What gathers for a queue while a hint is under way; the rest is left to the relay. */
const MOST_WAITING = 500
/** After a hint of jobs that all stay in Postgres: so will the next ones. */
const REST_MS = 50

export function createHints(
  store: Pick<RedisStore, 'evalsha' | 'eval' | 'isConnected'>,
  deployment: string,
  /** One was lost. */
  onError: (error: unknown) => void,
): Pick<Hints, 'give' | 'isPossible'> {
  let restUntil = 0
  const isPossible = (jobs: number) =>
    jobs <= MOST_JOBS && store.isConnected() && performance.now() >= restUntil
  const queues = new Map<string, { index: QueueIndex; waiting: ReadyJob[]; isUnderWay: boolean }>()
  const open = (name: string) => {
    const queue = { index: queueIndex(store, deployment, name), waiting: [], isUnderWay: false }
    queues.set(name, queue)
    return queue
  }
  const give = (name: string, jobs: readonly ReadyJob[]) => {
    if (jobs.length === 0 || !isPossible(jobs.length)) return
    const queue = queues.get(name) ?? open(name)
    if (queue.waiting.length + jobs.length <= MOST_WAITING) queue.waiting.push(...jobs)
    if (!queue.isUnderWay) send(queue)
  }

  /** One at a time: what becomes ready meanwhile travels in the next. */
  async function send(queue: { index: QueueIndex; waiting: ReadyJob[]; isUnderWay: boolean }) {
    queue.isUnderWay = true
    while (queue.waiting.length > 0) {
      const jobs = queue.waiting
      queue.waiting = []
      try {
        const { beyond } = await queue.index.hint(jobs)
        if (beyond === jobs.length) restUntil = performance.now() + REST_MS
      } catch (error) {
        onError(error)
      }
    }
    queue.isUnderWay = false
  }
  return { give, isPossible }
}

/** With a connection of its own. */
export function openHints(config: RedisConfig, deployment: string, logger: Logger): Hints {
  const onError = tellOfRedis(logger, 'the relay tells it of new jobs')
  const store = openRedis(config, onError)
  return { ...createHints(store, deployment, onError), close: () => store.close() }
}
