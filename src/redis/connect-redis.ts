/** Owns the way to a Redis server: connect once, ask what it is, and refuse what longshore does not support. */
import { Redis, type RedisOptions } from 'ioredis'
import { withoutCredentials } from '../job/credentials.ts'
import { LongshoreError } from '../job/errors.ts'

export type RedisClient = Redis

/** On top of what the URL says, as ioredis knows them. Replies keep the shape that the client's type promises. */
export type RedisClientOptions = Omit<RedisOptions, 'replyMapping'>

export interface RedisServer {
  readonly product: 'Redis' | 'Valkey'
  readonly version: string
  readonly isCluster: boolean
  /** What becomes of keys when the memory is full; undefined where this user may not ask. */
  readonly evictionPolicy: string | undefined
}

const OLDEST: Record<RedisServer['product'], readonly [major: number, minor: number]> = {
  Redis: [7, 0],
  Valkey: [7, 2],
}

export async function connectRedis(url: string, options: RedisClientOptions = {}): Promise<RedisClient> {
  const client = new Redis(url, { ...options, lazyConnect: true })
  let lastError: Error | undefined
  // Without a listener ioredis prints errors; callers who want to hear of them add their own.
  client.on('error', (error: Error) => {
    lastError = error
  })
  try {
    await client.connect()
    const refusal = whyUnsupported(await readRedisServer(client))
    if (refusal) throw new LongshoreError('STORE_UNSUPPORTED', refusal)
    return client
  } catch (error) {
    client.disconnect()
    if (error instanceof LongshoreError) throw error
    const cause = lastError ?? (error as Error)
    throw new LongshoreError(
      'STORE_UNAVAILABLE',
      `no Redis to be reached at ${withoutCredentials(url)}: ${cause.message}. Start one, or correct the URL`,
      { cause },
    )
  }
}

/** Valkey calls itself Redis 7.2 for old clients, so its own field is looked at first. */
export async function readRedisServer(client: RedisClient): Promise<RedisServer> {
  let info: string
  try {
    info = await client.info()
  } catch (error) {
    // INFO is among the commands that an ACL calls dangerous.
    if (!/NOPERM/.test(String((error as Error).message))) throw error
    return greet(client)
  }
  const field = (name: string) => new RegExp(`^${name}:(\\S+)`, 'm').exec(info)?.[1]
  const valkey = field('valkey_version')
  const rest = {
    isCluster: field('cluster_enabled') === '1',
    evictionPolicy: field('maxmemory_policy'),
  }
  return valkey
    ? { product: 'Valkey', version: valkey, ...rest }
    : { product: 'Redis', version: field('redis_version') ?? 'of unknown version', ...rest }
}

/** What every user may know. */
async function greet(client: RedisClient): Promise<RedisServer> {
  const told = (await client.call('HELLO')) as unknown[]
  const field = (name: string) => String(told[told.indexOf(name) + 1])
  return {
    product: field('server') === 'valkey' ? 'Valkey' : 'Redis',
    version: field('version'),
    isCluster: field('mode') === 'cluster',
    evictionPolicy: undefined,
  }
}

/** The reason why a server cannot be used, or undefined. */
export function whyUnsupported({
  product,
  version,
}: Pick<RedisServer, 'product' | 'version'>): string | undefined {
  const [major, minor] = OLDEST[product]
  const [hasMajor = 0, hasMinor = 0] = version.split('.').map(Number)
  const isSupported = hasMajor > major || (hasMajor === major && hasMinor >= minor)
  if (isSupported) return undefined
  return `${product} ${version} is not supported: longshore needs Redis ${OLDEST.Redis.join('.')} or newer, or Valkey ${OLDEST.Valkey.join('.')} or newer`
}
