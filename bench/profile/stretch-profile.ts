/**
 * Owns what `--profile` notes over the timed stretch of a measurement: the CPU profile of producer or relay, and what Redis
 * did for whom. (Workers take theirs by themselves, Postgres counts in `pg_stat_statements`.)
 */
import { writeFileSync } from 'node:fs'
import type { Redis } from 'ioredis'
import type { ForkedRelay } from '../processes/fork-relay.ts'
import { startProfile } from './record-profile.ts'

/** Whose processor time is looked at. */
export type Profiled = 'worker' | 'producer' | 'relay'

export interface StretchProfile {
  begin(): Promise<void>
  end(): Promise<void>
}

/** As Redis tells it. */
export interface RedisNotes {
  commandStats: string
  /** Of commands that took a millisecond or more: microseconds and the command's beginning. */
  slow: { us: number; command: string }[]
  /** By event: the longest, in milliseconds. */
  latency: { event: string; worstMs: number }[]
}

export const REDIS_NOTES = 'redis.json'

const SLOW_US = 1000
const SHOWN_SLOW = 5

export function profileStretch(
  { who, folder }: { who: Profiled; folder: string },
  { relay, redis }: { relay: ForkedRelay | undefined; redis: Redis | undefined },
): StretchProfile {
  let producer: Awaited<ReturnType<typeof startProfile>> | undefined
  return {
    async begin() {
      if (redis) await beginNotes(redis)
      if (who === 'relay') await relay?.startProfile()
      if (who === 'producer') producer = await startProfile()
    },
    async end() {
      await producer?.stop(`${folder}/producer-${process.pid}.cpuprofile`)
      if (who === 'relay') await relay?.stopProfile(`${folder}/relay-${relay.pid}.cpuprofile`)
      if (redis) writeFileSync(`${folder}/${REDIS_NOTES}`, JSON.stringify(await readNotes(redis)))
    },
  }
}

async function beginNotes(redis: Redis): Promise<void> {
  await redis.config('SET', 'slowlog-log-slower-than', SLOW_US)
  await redis.config('SET', 'latency-monitor-threshold', 1)
  await redis.slowlog('RESET')
  await redis.latency('RESET')
  await redis.config('RESETSTAT')
}

async function readNotes(redis: Redis): Promise<RedisNotes> {
  const commandStats = await redis.info('commandstats')
  const slow = (await redis.slowlog('GET', 128)) as [number, number, number, string[]][]
  const latency = (await redis.latency('LATEST')) as [string, number, number, number][]
  return {
    commandStats,
    slow: slow
      .map(([, , us, words]) => ({ us, command: words.slice(0, 3).join(' ').slice(0, 80) }))
      .sort((a, b) => b.us - a.us)
      .slice(0, SHOWN_SLOW),
    latency: latency.map(([event, , , worstMs]) => ({ event, worstMs })),
  }
}
