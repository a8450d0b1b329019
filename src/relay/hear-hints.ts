/**
 * What a leading relay does with the hints of producers: it checks them and places the jobs. A hint only adds a job that Redis does
 * not know, without a lease token: a false one is an extra id, which the claim refuses, or stands where the job does not belong until
 * its outbox row is applied. What is ignored here is found in the outbox.
 */
import { readHint } from '../redis/hint-message.ts'
import { createHints } from '../redis/hints.ts'
import type { RedisStore } from '../redis/open-redis.ts'
import type { Logger } from '../runtime/logger.ts'
import type { QueueRelay } from './queue-relay.ts'

export interface HeardHints {
  /** Since the start: they made no sense, or their queue was not open. */
  readonly ignored: number
  hear(text: string): void
}

export function hearHints(options: {
  store: RedisStore
  deployment: string
  queues: ReadonlyMap<string, Pick<QueueRelay, 'isOpen'>>
  /** A queue that is not holds only what the relay has placed: a hint would put a job there that it does not know of. */
  isInUse: (queue: string) => boolean
  logger: Logger
}): HeardHints {
  const { store, deployment, queues, isInUse, logger } = options
  const { give } = createHints(store, deployment, error =>
    logger.debug({ err: error }, 'a hint was lost; its jobs are found in the outbox'),
  )
  let ignored = 0
  return {
    get ignored() {
      return ignored
    },
    hear(text) {
      const hint = readHint(text)
      if (hint && queues.get(hint.queue)?.isOpen && isInUse(hint.queue))
        return give(
          hint.queue,
          hint.jobs.map(job => ({ ...job, leaseToken: '0' })),
        )
      ignored++
      logger.debug(
        { characters: text.length },
        hint ? 'a hint of a queue that is not open was ignored' : 'what is no hint was ignored',
      )
    },
  }
}
