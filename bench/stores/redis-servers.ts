/** Owns the Redis servers of a run: one for each way of keeping things that a chosen peer asks for. */
import type { Persistence, RedisUnderTest } from './redis.ts'
import { openRedis } from './redis.ts'

export interface RedisServers {
  /** One line for each server. */
  readonly choices: readonly string[]
  /** Throws why there is none: then only the peers that ask for it go unmeasured. */
  get(persistence: Persistence): RedisUnderTest
  /** Leaves all of them empty, so that those which wait hold no memory. */
  reset(): Promise<void>
  stop(): Promise<void>
}

export async function openRedisServers(asked: readonly Persistence[]): Promise<RedisServers> {
  const servers = new Map<Persistence, RedisUnderTest>()
  const failures = new Map<Persistence, Error>()
  for (const persistence of new Set(asked)) {
    try {
      servers.set(persistence, await openRedis(persistence))
    } catch (error) {
      failures.set(persistence, error as Error)
    }
  }
  const each = (work: (server: RedisUnderTest) => Promise<void>) =>
    Promise.all([...servers.values()].map(work))
  return {
    choices: [...servers.values()].map(({ choice }) => choice),
    get(persistence) {
      const server = servers.get(persistence)
      if (server) return server
      throw failures.get(persistence) ?? new Error(`no Redis with "${persistence}" was asked for`)
    },
    async reset() {
      await each(server => server.reset())
    },
    async stop() {
      await each(server => server.stop())
    },
  }
}
