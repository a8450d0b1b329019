/** Owns which errors say that Redis is away, and how a process that can do without it tells that it has to. */
import { messageOf } from '../job/stored-error.ts'
import type { Logger } from '../runtime/logger.ts'
import { createOutage, type Told } from '../runtime/outage.ts'
import { namingRights } from './scripts.ts'

/** Those of ioredis, of our own store without a connection, and what a server says that starts, fails over or is cut off. */
const AWAY =
  /^(connection is closed|command timed out|stream isn't writeable|socket timeout|reached the max retries|no redis at|failed to refresh slots|(clusterdown|loading|masterdown|readonly|tryagain)\b)/i
/** Postgres's are the same. */
const NETWORK = /^(connect|read|write|getaddrinfo) E/

export const isRedisAway = (error: unknown): boolean => error instanceof Error && AWAY.test(error.message)

export interface RedisTrouble extends Told {
  /** Redis could not be asked or told something. */
  onTrouble(error: unknown): void
}

/** `meanwhile`: what happens without it. Of what is not an outage, such as missing rights, each reason is told. */
export function tellOfRedis(logger: Logger, meanwhile: string): RedisTrouble {
  const outage = createOutage(logger, `Redis cannot be used: ${meanwhile}`, 'Redis can be used again')
  return {
    outage,
    isOf: isRedisAway,
    onTrouble(error) {
      const err = namingRights(error)
      const reason = messageOf(err)
      outage.failed(err, isRedisAway(err) || NETWORK.test(reason) ? '' : reason)
    },
  }
}
