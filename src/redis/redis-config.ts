/** Owns how a user says where Redis is. */
import type { ClusterOptions, RedisOptions } from 'ioredis'
import { LongshoreError } from '../job/errors.ts'
import { shown } from '../job/shown.ts'

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
  const isSettings = typeof config === 'object' && config !== null && 'url' in config
  const given = isSettings ? config : { url: config as string | readonly string[] }
  const { url } = given
  const urls = (
    typeof url === 'string' ? url.split(/,(?=\s*\w+:\/\/)/) : Array.isArray(url) ? url : [url]
  ).map(url => (typeof url === 'string' ? url.trim() : shown(url)))
  for (const url of urls.length > 0 ? urls : ['an empty list']) {
    if (isRedisUrl(url)) continue
    throw new LongshoreError(
      'CONFIG_INVALID',
      `a Redis URL must start with redis:// or rediss:// and name a host, as in redis://localhost:6379; got ${shownUrl(url)}: set REDIS_URL or pass \`redis\`, with @ : / ? # % in a password written as %40 %3A %2F %3F %23 %25`,
    )
  }
  return { urls, options: given.options ?? {}, clusterOptions: given.clusterOptions ?? {} }
}

function isRedisUrl(text: string): boolean {
  try {
    const { protocol, username, password } = new URL(text)
    // The driver decodes them as well, and would throw.
    decodeURIComponent(username + password)
    return /^rediss?:$/.test(protocol) && /^rediss?:\/\/./.test(text)
  } catch {
    return false
  }
}

/** Nobody knows where in a wrong one a password is. */
const shownUrl = (url: string): string =>
  /^\w{1,20}:\/\//.exec(url)?.[0].concat('…') ?? 'something without that'
