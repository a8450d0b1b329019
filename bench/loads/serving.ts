/** Owns waiting until workers take their jobs from Redis: each is registered there. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Setting } from '../measure/setting.ts'

const LIMIT_MS = 60_000

export async function untilServing({ redis }: Setting, workers: number): Promise<void> {
  if (!redis) throw new Error('there is no Redis to serve from')
  const giveUpAt = performance.now() + LIMIT_MS
  for (;;) {
    const [key] = await redis.client.keys('longshore:*:workers')
    const registered = key === undefined ? 0 : await redis.client.hlen(key)
    if (registered === workers) return
    if (performance.now() > giveUpAt) throw new Error(`${registered} of ${workers} workers are registered`)
    await pause(50)
  }
}
