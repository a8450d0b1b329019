/** Owns waiting for the relay: until an emptied Redis is in use again, and until it holds all that it may. */
import { setTimeout as pause } from 'node:timers/promises'
import type { RelayMetrics } from '../../src/index.ts'
import type { Setting } from '../measure/setting.ts'
import type { RedisUnderTest } from '../stores/redis.ts'

const LIMIT_MS = 60_000

type Queue = RelayMetrics['queues'][number]

/** Empty Redis: the relay begins a generation and reads in what is ready, also what was stored without telling it. */
export async function emptyRedis(setting: Setting): Promise<{ isNew(queue: Queue | undefined): boolean }> {
  const before = (await queueOf(setting))?.generation
  await setting.redis?.reset()
  return { isNew: queue => queue?.isLive === true && queue.generation !== before }
}

export async function untilFull(
  setting: Setting,
  isNew: (queue: Queue | undefined) => boolean,
): Promise<void> {
  await until('every window is full', async () => {
    const queue = await queueOf(setting)
    return isNew(queue) && queue?.lanesToRead === 0
  })
}

export async function until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const giveUpAt = performance.now() + LIMIT_MS
  while (!(await holds())) {
    if (performance.now() > giveUpAt) throw new Error(`not within ${LIMIT_MS / 1000} s: ${what}`)
    await pause(2)
  }
}

/** Jobs that workers have taken out of Redis and not claimed yet. */
export async function countTaken(redis: RedisUnderTest | undefined): Promise<number> {
  if (!redis) throw new Error('there is no Redis to take jobs from')
  const [key] = await redis.client.keys('*:taken')
  // A generation begins with an entry that is no job.
  return key === undefined ? 0 : Math.max(0, (await redis.client.hlen(key)) - 1)
}

async function queueOf({ relay }: Setting): Promise<Queue | undefined> {
  if (!relay) throw new Error('there is no relay to ask')
  return (await relay.metrics()).queues[0]
}
