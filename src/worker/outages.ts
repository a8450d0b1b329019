/** Owns which outages a worker tells of, over all its lives. */
import { tellOfPostgres } from '../postgres/postgres-outage.ts'
import { type RedisTrouble, tellOfRedis } from '../redis/redis-trouble.ts'
import type { Logger } from '../runtime/logger.ts'
import { createOutage, type Outage, type Told } from '../runtime/outage.ts'

export interface Outages {
  readonly postgres: Told
  readonly redis: RedisTrouble
  /** Redis is there, and no relay keeps it in step. */
  readonly relay: Outage
}

export const createOutages = (logger: Logger): Outages => ({
  postgres: tellOfPostgres(logger, 'jobs that run go on, no others are claimed, and the worker tries again'),
  redis: tellOfRedis(logger, 'jobs come directly from Postgres'),
  relay: createOutage(
    logger,
    'jobs come directly from Postgres, because no relay keeps Redis in step: start `longshore relay`, or leave out REDIS_URL',
    'a relay keeps Redis in step: jobs come through Redis',
  ),
})
