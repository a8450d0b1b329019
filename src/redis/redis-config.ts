/** Owns how a user says where Redis is. */
import type { ClusterOptions, RedisOptions } from 'ioredis'
import { LongshoreError } from '../job/errors.ts'

/**
 * A URL; several, of nodes of one Redis Cluster (one is enough to find the others); or URLs with settings of `ioredis` on top,
 * such as `tls`, or `natMap` of a cluster. A text may hold several URLs, separated by commas.
 */
export type RedisConfig =
  | string
  | readonly string[]
  | {
      readonly url: string | readonly string[]
      readonly options?: Omit<RedisOptions, 'replyMapping'>
      readonly clusterOptions?: Pick<ClusterOptions, 'natMap' | 'dnsLookup' | 'slotsRefreshInterval'>
    }

export interface RedisPlace {
  urls: string[]
  options: Omit<RedisOptions, 'replyMapping'>
  clusterOptions: ClusterOptions
}

export function readRedisConfig(config: RedisConfig): RedisPlace {
  const given =
    typeof config === 'object' && 'url' in config ? config : { url: config as string | readonly string[] }
  const urls = (typeof given.url === 'string' ? given.url.split(',') : [...(given.url ?? [])]).map(url =>
    String(url).trim(),
  )
  for (const url of urls) {
    if (/^rediss?:\/\/./.test(url)) continue
    throw new LongshoreError(
      'CONFIG_INVALID',
      `a Redis URL must start with redis:// or rediss://; got ${withoutPassword(url)}: set REDIS_URL or pass \`redis\``,
    )
  }
  return { urls, options: given.options ?? {}, clusterOptions: given.clusterOptions ?? {} }
}

export function withoutPassword(url: string): string {
  return url.replace(/\/\/[^@/]*@/, '//')
}
