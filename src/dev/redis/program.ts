/** Owns what a usable Redis program is: one that runs here and is new enough. */

import { LongshoreError } from '../../job/errors.ts'
import { type RedisServer, whyUnsupported } from '../../redis/connect-redis.ts'
import type { Guardian } from '../guardian.ts'
import { serverUser } from '../server-user.ts'

export interface NativeRedis extends Pick<RedisServer, 'product' | 'version'> {
  readonly command: string
  readonly env: Readonly<Record<string, string>>
}

const BASE_ENV = { LC_ALL: 'C', TZ: 'UTC', PATH: '/usr/local/bin:/usr/bin:/bin' }

/** Runs it as the server's user, which also finds missing libraries and folders it cannot enter. */
export async function tryProgram(
  guardian: Guardian,
  command: string,
  libraries: string[] = [],
): Promise<NativeRedis> {
  const env = libraries.length > 0 ? { ...BASE_ENV, LD_LIBRARY_PATH: libraries.join(':') } : BASE_ENV
  const exit = await guardian.run({ command, args: ['--version'], env, user: serverUser }, 10_000)
  // `redis-server` may well be Valkey under the old name, so its own words count.
  const [, name, version] = /^(Redis|Valkey) server v=(\S+)/m.exec(exit.output) ?? []
  if (exit.code !== 0 || !name || !version) {
    throw new LongshoreError(
      'STORE_UNAVAILABLE',
      `${command} cannot be run: ${exit.output.trim() || 'it says nothing'}`,
    )
  }
  const product = name as RedisServer['product']
  const refusal = whyUnsupported({ product, version })
  if (refusal) throw new LongshoreError('STORE_UNSUPPORTED', `${command} is skipped: ${refusal}`)
  return { product, version, command, env }
}

export function nameChoice({ product, version }: NativeRedis, reason: string): string {
  return `${product} ${version} (${reason})`
}
