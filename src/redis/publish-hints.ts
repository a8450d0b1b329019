/**
 * Owns the hints of a producer: it publishes them, and the relay that leads places the jobs. So a producer's user of Redis needs no
 * key and no script, and reads nothing of others' jobs (ADR 25).
 */
import type { Logger } from '../runtime/logger.ts'
import { type HintedJob, MOST_HINTED, writeHint } from './hint-message.ts'
import { gatherHints, type Hints } from './hints.ts'
import { hintChannel } from './names.ts'
import { openRedis } from './open-redis.ts'
import type { RedisConfig } from './redis-config.ts'
import { tellOfRedis } from './redis-trouble.ts'

export interface PublishedHints extends Hints<HintedJob> {
  /** A hint of so many jobs would most likely arrive: then the relay need not be woken for them. */
  isPossible(jobs: number): boolean
  close(): void
}

/** After a hint that was refused, or that no relay heard: until then each commit wakes the relay through Postgres. */
const REST_MS = 1000

/** With a connection of its own. */
export function publishHints(config: RedisConfig, deployment: string, logger: Logger): PublishedHints {
  const { onTrouble, outage } = tellOfRedis(logger, 'the relay finds new jobs in Postgres')
  const store = openRedis(config, onTrouble, { onReady: outage.works })
  const channel = hintChannel(deployment)
  let restUntil = 0
  const rest = () => {
    restUntil = performance.now() + REST_MS
  }
  const gather = gatherHints<HintedJob>(
    async (queue, jobs) => {
      if ((await store.publish(channel, writeHint(queue, jobs))) === 0) rest()
    },
    error => {
      rest()
      onTrouble(error)
    },
  )
  return {
    isPossible: jobs => jobs <= MOST_HINTED && store.isConnected() && performance.now() >= restUntil,
    give(queue, jobs) {
      if (store.isConnected()) gather(queue, jobs)
    },
    close: () => store.close(),
  }
}
