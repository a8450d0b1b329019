/** Owns which Redis is used: the one that is given, Docker's, the machine's own, Debian's unpacked, Valkey in WASM. */
import { LongshoreError } from '../../job/errors.ts'
import { connectRedis, readRedisServer } from '../../redis/connect-redis.ts'
import { isDockerAskedFor, startContainer } from '../docker.ts'
import { type Guardian, openGuardian } from '../guardian.ts'
import { type Environment, foreignStore, type Store } from '../store.ts'
import { findLocal } from './find-local.ts'
import type { RedisOptions } from './options.ts'
import { type NativeRedis, nameChoice } from './program.ts'
import { runNative } from './run-native.ts'
import { runWasm } from './run-wasm.ts'
import { unpackDebian } from './unpack-debian.ts'

type RedisChoice =
  | { readonly program: NativeRedis; readonly reason: string }
  | { readonly program: 'wasm'; readonly reason: string }

export async function startRedis(options: RedisOptions = {}): Promise<Store> {
  const env = options.env ?? process.env
  if (!needsOwn(options)) {
    const url = env['REDIS_URL']
    if (url) return useGiven(url)
    if (isDockerAskedFor(env)) return startInDocker(env)
  }
  const guardian = openGuardian()
  try {
    const { program, reason } = await chooseRedis(guardian, env, options.progress)
    if (program === 'wasm') return await runWasm(guardian, reason, options)
    const choice = nameChoice(program, reason)
    return await runNative(guardian, { program, choice, options, onStopped: () => guardian.end() })
  } catch (error) {
    await guardian.end()
    throw error
  }
}

function needsOwn({ own, dataDir, port, tls, settings, users, replicaOf }: RedisOptions): boolean {
  return (
    own ?? [dataDir, port, tls || undefined, settings, users, replicaOf].some(option => option !== undefined)
  )
}

async function useGiven(url: string): Promise<Store> {
  const client = await connectRedis(url)
  const { product, version } = await readRedisServer(client)
  client.disconnect()
  return foreignStore({ url, version, choice: `${product} ${version} (REDIS_URL)` })
}

function startInDocker(env: Environment): Promise<Store> {
  return startContainer(
    {
      image: 'redis:8-alpine',
      port: 6379,
      env: {},
      readyLine: /Ready to accept connections/,
      readyTimes: 1,
      versionCommand: ['redis-server', '--version'],
      url: (host, port) => `redis://${host}:${port}`,
    },
    env,
  )
}

export async function chooseRedis(
  guardian: Guardian,
  env: Environment,
  progress: (line: string) => void = () => {},
): Promise<RedisChoice> {
  const asked = env['LONGSHORE_REDIS'] || undefined
  const why = asked && `LONGSHORE_REDIS=${asked}`
  switch (asked) {
    case undefined:
      return firstUsable(guardian, env, progress)
    case 'local': {
      const local = await findLocal(guardian, env)
      if ('missing' in local) throw notToBeHad(`${why}, but ${local.missing}`)
      return { program: local, reason: `the machine's own ${local.command}, ${why}` }
    }
    case 'debian': {
      const debian = await unpackDebian(guardian, { env, progress, insist: true })
      if ('missing' in debian) throw notToBeHad(`${why}, but ${debian.missing}`)
      return { program: debian, reason: `Debian's package unpacked into the cache, ${why}` }
    }
    case 'wasm':
      return { program: 'wasm', reason: `${why}` }
    default:
      throw new LongshoreError(
        'CONFIG_INVALID',
        `LONGSHORE_REDIS is "${asked}": choose "local", "debian" or "wasm", or unset it`,
      )
  }
}

async function firstUsable(
  guardian: Guardian,
  env: Environment,
  progress: (line: string) => void,
): Promise<RedisChoice> {
  const local = await findLocal(guardian, env)
  if (!('missing' in local)) return { program: local, reason: `the machine's own ${local.command}` }
  const debian = await unpackDebian(guardian, { env, progress, insist: false })
  if (!('missing' in debian)) {
    return { program: debian, reason: `Debian's package unpacked into the cache; ${local.missing}` }
  }
  return { program: 'wasm', reason: `${local.missing}; ${debian.missing}` }
}

function notToBeHad(message: string): LongshoreError {
  return new LongshoreError(
    'STORE_UNAVAILABLE',
    `${message}. Unset LONGSHORE_REDIS to use what there is, or set REDIS_URL`,
  )
}
