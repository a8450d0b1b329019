/** Owns Debian's `redis-server` without installing it. */
import { join } from 'node:path'
import { unpackPackage } from '../debian-package.ts'
import type { Guardian } from '../guardian.ts'
import type { StoreOptions } from '../store.ts'
import { type NativeRedis, tryProgram } from './program.ts'

interface Plan {
  readonly env: NonNullable<StoreOptions['env']>
  readonly progress: (line: string) => void
  /** Try even if it failed a moment ago. */
  readonly insist: boolean
}

export const unpackDebian = (guardian: Guardian, plan: Plan): Promise<NativeRedis | { missing: string }> =>
  unpackPackage(guardian, {
    ...plan,
    package: 'redis-server',
    cacheName: 'redis-debian',
    trial: (place, libraries) => tryProgram(guardian, join(place, 'usr/bin/redis-server'), libraries),
  })
