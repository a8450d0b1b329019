/** What the demo does to Redis, and sees of it. */
import { Redis } from 'ioredis'
import type pg from 'pg'

export interface RedisShow {
  /** Resolves when jobs of the default queue go through Redis for so many workers, in another generation than `before`. */
  isDispatching(workers: number, before?: string): Promise<string>
  /** Empty it. Answers how many ready jobs it held. */
  flush(): Promise<number>
  /** How often workers were woken through Redis so far. */
  bells(): number
  close(): void
}

export async function watchRedis(url: string, client: pg.Client): Promise<RedisShow> {
  const calls = new Redis(url)
  const ears = new Redis(url)
  let bells = 0
  ears.on('pmessage', () => bells++)
  await ears.psubscribe('longshore:*:bell:*')

  /** The generation of Redis' content that Postgres knows of, and the keys of it. */
  const readGeneration = async () => {
    const { rows } = await client.query<{ generation: string; keys: string }>(
      `select generation, format('longshore:%s:{default}:2:%s:', deployment, generation) as keys
       from longshore.relayed, longshore.settings where queue = 'default'`,
    )
    return rows[0]
  }

  return {
    async isDispatching(workers, before) {
      for (;;) {
        const now = await readGeneration()
        if (now && now.generation !== before && (await calls.hlen(`${now.keys}workers`)) === workers)
          return now.generation
      }
    },
    async flush() {
      const now = await readGeneration()
      const held = (await calls.hlen(`${now?.keys}jobs`)) - 1 // one entry is always there
      await calls.flushall()
      return held
    },
    bells: () => bells,
    close() {
      calls.disconnect()
      ears.disconnect()
    },
  }
}
