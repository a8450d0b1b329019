/** Owns how much memory Redis uses. */
import type { Figure } from './measurement.ts'
import type { Setting } from './setting.ts'

export const REDIS_MEMORY = { name: 'Redis memory', unit: 'MB', better: 'lower' } as const satisfies Figure

export async function redisMemory({ redis }: Setting): Promise<number> {
  const used = /^used_memory:(\d+)/m.exec((await redis?.client.info('memory')) ?? '')?.[1]
  if (used === undefined) throw new Error('Redis does not tell its memory')
  return Number(used) / 1024 / 1024
}
