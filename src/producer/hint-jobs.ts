/**
 * Owns what a producer with a Redis does after a commit: it hints which jobs are ready, queue by queue. Without a Redis, and until
 * its client is loaded, there is nothing to hint to.
 */
import type { MadeReady } from '../postgres/enqueue-jobs.ts'
import type { PublishedHints } from '../redis/publish-hints.ts'
import type { RedisConfig } from '../redis/redis-config.ts'
import type { Logger } from '../runtime/logger.ts'

export interface JobHints {
  /** A hint of so many jobs would most likely arrive. */
  isPossible(jobs: number): boolean
  give(jobs: readonly MadeReady[]): void
  /** Opens the connection, once. */
  open(readDeployment: () => Promise<string>): Promise<void>
  close(): void
}

export function createJobHints(redis: RedisConfig | undefined, logger: Logger): JobHints {
  let published: PublishedHints | undefined
  return {
    isPossible: jobs => published?.isPossible(jobs) ?? false,
    give(jobs) {
      if (!published || jobs.length === 0) return
      const byQueue = new Map<string, MadeReady[]>()
      for (const job of jobs) {
        const ofQueue = byQueue.get(job.queue)
        if (ofQueue) ofQueue.push(job)
        else byQueue.set(job.queue, [job])
      }
      for (const [queue, ofQueue] of byQueue) published.give(queue, ofQueue)
    },
    async open(readDeployment) {
      if (!redis || published) return
      // Only now: a producer without Redis does not load its client.
      const { publishHints } = await import('../redis/publish-hints.ts')
      published = publishHints(redis, await readDeployment(), logger)
    },
    close: () => published?.close(),
  }
}
