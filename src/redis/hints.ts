/**
 * Owns hints: telling Redis of jobs that a commit has just made ready, ahead of the relay's look at the outbox. None is ever needed:
 * when there is no connection, or too much to tell, it is left out. Workers and the relay run the script; producers tell the relay,
 * see `publish-hints.ts`.
 */
import type { ReadyJob } from '../job/ready-job.ts'
import { MOST_HINTED } from './hint-message.ts'
import type { RedisStore } from './open-redis.ts'
import { type QueueIndex, queueIndex } from './queue-index.ts'

export interface Hints<Job = ReadyJob> {
  give(queue: string, jobs: readonly Job[]): void
}

/** What gathers for a queue while a hint is under way; the rest is left to the outbox. */
const MOST_WAITING = 500
/** After a hint of jobs that all stay in Postgres: so will the next ones of this queue. */
const REST_MS = 50

export function createHints(
  store: Pick<RedisStore, 'evalsha' | 'load' | 'isConnected'>,
  deployment: string,
  /** One was lost. */
  onError: (error: unknown) => void,
): Hints {
  const queues = new Map<string, { index: QueueIndex; restUntil: number }>()
  const open = (name: string) => {
    const queue = { index: queueIndex(store, deployment, name), restUntil: 0 }
    queues.set(name, queue)
    return queue
  }
  const gather = gatherHints<ReadyJob>(async (name, jobs) => {
    const queue = queues.get(name) ?? open(name)
    const { beyond } = await queue.index.hint(jobs)
    if (beyond === jobs.length) queue.restUntil = performance.now() + REST_MS
  }, onError)
  return {
    give(name, jobs) {
      if (store.isConnected() && performance.now() >= (queues.get(name)?.restUntil ?? 0)) gather(name, jobs)
    },
  }
}

/** One hint of a queue at a time: what becomes ready meanwhile travels in the next. More than fit one are load, and left out. */
export function gatherHints<Job>(
  send: (queue: string, jobs: readonly Job[]) => Promise<void>,
  onError: (error: unknown) => void,
): Hints<Job>['give'] {
  const underWay = new Map<string, Job[]>()
  const sendAll = async (queue: string, waiting: Job[]) => {
    while (waiting.length > 0) await send(queue, waiting.splice(0, MOST_HINTED)).catch(onError)
    underWay.delete(queue)
  }
  return (queue, jobs) => {
    if (jobs.length === 0 || jobs.length > MOST_HINTED) return
    const waiting = underWay.get(queue)
    if (waiting && waiting.length + jobs.length <= MOST_WAITING) waiting.push(...jobs)
    if (waiting) return
    const first = [...jobs]
    underWay.set(queue, first)
    sendAll(queue, first)
  }
}
