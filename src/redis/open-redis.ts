/**
 * Owns the long-lived ways to Redis of a worker, a relay or a producer: one connection (or cluster of them) for calls, one for
 * notifications. Calls fail at once while there is no connection, and after a second without an answer; both come back by
 * themselves. A cluster is recognised by asking.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { Cluster, Redis } from 'ioredis'
import { withoutCredentials } from '../job/credentials.ts'
import { LongshoreError } from '../job/errors.ts'
import {
  connectRedis,
  type RedisClient,
  type RedisClientOptions,
  type RedisServer,
  readRedisServer,
} from './connect-redis.ts'
import { type RedisConfig, readRedisConfig } from './redis-config.ts'
import { allScripts, type ScriptRunner } from './scripts.ts'

export interface RedisStore extends ScriptRunner {
  /** Whether calls have a way now. */
  isConnected(): boolean
  /** Resolves when it listens on all of them for the first time. From then on also after every gap. */
  subscribe(channels: readonly string[], onMessage: (channel: string, text: string) => void): Promise<void>
  /** Nothing was heard for too long: listen on a new connection. */
  resubscribe(): void
  unsubscribe(): void
  /** Answers how many have heard it, or undefined for a cluster, where a node knows only of its own. */
  publish(channel: string, text: string): Promise<number | undefined>
  /** For looking: the names of keys, and plain reads. */
  read(command: string, ...args: string[]): Promise<unknown>
  close(): void
}

const CALL_TIMEOUT_MS = 1000
const CONNECT_TIMEOUT_MS = 2000
const MOST_PAUSE_MS = 1000
const pauseBefore = (tries: number) => Math.min(MOST_PAUSE_MS, 50 * tries) * (0.5 + Math.random() / 2)

/** Settings of a server that it must not be used with, checked where it can be reached. False: this user may not ask for them. */
export async function checkRedis(config: RedisConfig): Promise<boolean> {
  const { urls, options } = readRedisConfig(config)
  const { evictionPolicy } = await firstReached(urls, options, readUsable)
  return evictionPolicy !== undefined
}

/** A server that throws keys away when it is full would lose parts of what belongs together. */
async function readUsable(client: RedisClient): Promise<RedisServer> {
  const server = await readRedisServer(client)
  const policy = server.evictionPolicy
  if (policy === undefined || policy === 'noeviction') return server
  throw new LongshoreError(
    'STORE_UNSUPPORTED',
    `this Redis throws keys away when its memory is full (maxmemory-policy ${policy}): set maxmemory-policy noeviction, or use a server of its own for longshore`,
  )
}

async function firstReached<T>(
  urls: readonly string[],
  options: RedisClientOptions,
  ask: (client: RedisClient) => Promise<T>,
): Promise<T> {
  let last: unknown
  for (const url of urls) {
    try {
      const client = await connectRedis(url, {
        ...options,
        connectTimeout: CONNECT_TIMEOUT_MS,
        commandTimeout: CALL_TIMEOUT_MS,
        // It would ask with INFO, which this user may lack.
        enableReadyCheck: false,
        retryStrategy: () => null,
        maxRetriesPerRequest: 0,
      })
      try {
        return await ask(client)
      } finally {
        client.disconnect()
      }
    } catch (error) {
      if (error instanceof LongshoreError && error.code === 'STORE_UNSUPPORTED') throw error
      last = error
    }
  }
  throw last
}

/** Opens by itself, now or when the server can be reached. */
export function openRedis(
  config: RedisConfig,
  onError: (error: Error) => void,
  /** `mayLoad`: scripts that the server does not know are loaded; otherwise calls of them fail. `onReady`: calls have a way, for the first time or again. */
  { mayLoad = false, onReady = () => undefined }: { mayLoad?: boolean; onReady?: () => void } = {},
): RedisStore {
  const place = readRedisConfig(config)
  allScripts() // a package without them is told here, not by the first call
  let calls: Redis | Cluster | undefined
  let listener: Redis | Cluster | undefined
  let isClosed = false
  let isCluster: boolean | undefined
  let mayAskInfo = true
  const closing = new AbortController()
  let wanted: { channels: readonly string[]; onMessage: (channel: string, text: string) => void } | undefined
  let onSubscribed: (() => void) | undefined

  const open = (role: 'calls' | 'listener'): Redis | Cluster => {
    const options: RedisClientOptions = {
      ...place.options,
      connectTimeout: CONNECT_TIMEOUT_MS,
      enableOfflineQueue: role === 'listener',
      enableReadyCheck: mayAskInfo,
      maxRetriesPerRequest: role === 'listener' ? null : 0,
      retryStrategy: pauseBefore,
      // ioredis would leave the promise of it to nobody: a connection that breaks before the answer then ends the process.
      autoResubscribe: false,
      ...(role === 'calls' ? { commandTimeout: CALL_TIMEOUT_MS, socketTimeout: 2 * CALL_TIMEOUT_MS } : {}),
    }
    const client = isCluster
      ? new Cluster([...place.urls], {
          ...place.clusterOptions,
          enableOfflineQueue: role === 'listener',
          clusterRetryStrategy: pauseBefore,
          slotsRefreshTimeout: CONNECT_TIMEOUT_MS,
          slotsRefreshInterval: 5000,
          retryDelayOnClusterDown: 50,
          retryDelayOnFailover: 50,
          maxRedirections: 4,
          redisOptions: options,
        })
      : new Redis(place.urls[0] as string, options)
    client.on('error', (error: Error) => {
      if (!isClosed) onError(error)
    })
    // A server that hangs up is no error to ioredis.
    client.on('close', () => {
      if (!isClosed && role === 'calls') onError(new Error('Connection is closed.'))
    })
    return client
  }

  const listen = () => {
    if (!wanted || isClosed || isCluster === undefined) return
    listener?.disconnect()
    const { channels, onMessage } = wanted
    const client = open('listener')
    listener = client
    client.on('message', (channel: string, text: string) => {
      if (client === listener) onMessage(channel, text)
    })
    const subscribe = () =>
      client.subscribe(...channels).then(
        () => onSubscribed?.(),
        (error: Error) => {
          if (!isClosed && client === listener) onError(error)
        },
      )
    if (client instanceof Cluster) subscribe()
    else client.on('ready', subscribe)
  }

  /** Whether it is a cluster is known when one server has answered. */
  const recognise = async () => {
    for (let tries = 1; !isClosed; tries++) {
      try {
        const server = await firstReached(place.urls, place.options, readUsable)
        isCluster = server.isCluster
        mayAskInfo = server.evictionPolicy !== undefined
        if (isClosed) return
        calls = open('calls').on('ready', onReady)
        listen()
        return
      } catch (error) {
        onError(error as Error)
        await pause(pauseBefore(tries), undefined, { signal: closing.signal }).catch(() => undefined)
      }
    }
  }
  recognise()

  const need = () => {
    if (calls) return calls
    throw new LongshoreError(
      'STORE_UNAVAILABLE',
      `no Redis at ${place.urls.map(withoutCredentials).join(', ')} yet`,
    )
  }

  const loading = new Map<readonly string[], Promise<void>>()
  const loadNow = async (texts: readonly string[]) => {
    const client = need()
    const nodes = client instanceof Cluster ? client.nodes('master') : [client]
    const answers = await Promise.allSettled(
      nodes.flatMap(node => texts.map(text => node.script('LOAD', text))),
    )
    const failed = answers.find(answer => answer.status === 'rejected')
    if (failed) throw failed.reason
  }
  /** Once for all queues that miss them in the same moment. */
  const load = (texts: readonly string[]) => {
    const underWay = loading.get(texts) ?? loadNow(texts).finally(() => loading.delete(texts))
    loading.set(texts, underWay)
    return underWay
  }

  return {
    isConnected: () => calls?.status === 'ready',
    evalsha: async (sha, keys, ...args) => need().evalsha(sha, keys, ...args),
    ...(mayLoad ? { load } : {}),
    read: async (command, ...args) => need().call(command, ...args),
    subscribe(channels, onMessage) {
      return new Promise(resolve => {
        wanted = { channels, onMessage }
        onSubscribed = resolve
        listen()
      })
    },
    resubscribe: listen,
    unsubscribe() {
      wanted = undefined
      listener?.disconnect()
      listener = undefined
    },
    async publish(channel, text) {
      const heard = await need().publish(channel, text)
      return isCluster ? undefined : heard
    },
    close() {
      isClosed = true
      closing.abort()
      calls?.disconnect()
      listener?.disconnect()
    },
  }
}
