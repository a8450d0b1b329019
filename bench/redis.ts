/** Owns the Redis under test: a server of our own that keeps nothing on disk, for the peers that need one. */
import { Redis } from 'ioredis'
import { startRedis } from '../src/dev/index.ts'

export interface RedisUnderTest {
  readonly url: string
  /** One sentence: which server this is. */
  readonly choice: string
  /** For CPU accounting. */
  readonly pid: number | undefined
  /** A connection of our own, for questions. */
  readonly client: Redis
  /** Leaves it empty. */
  reset(): Promise<void>
  stop(): Promise<void>
}

export async function openRedis(): Promise<RedisUnderTest> {
  const server = await startRedis({ own: true, progress: line => process.stderr.write(`${line}\n`) })
  const client = new Redis(server.url)
  client.on('error', () => undefined) // the next command tells
  return {
    url: server.url,
    choice: server.choice,
    pid: server.pid,
    client,
    async reset() {
      await client.flushall()
    },
    async stop() {
      client.disconnect()
      await server.stop()
    },
  }
}
