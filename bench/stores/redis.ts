/** Owns a Redis under test: a server of our own that keeps nothing on disk, or an append-only file. */
import { setTimeout as pause } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { startRedis } from '../../src/dev/index.ts'

export const PERSISTENCES = {
  memory: { settings: [], says: 'nothing on disk' },
  everysec: {
    settings: ['appendonly yes', 'appendfsync everysec', 'auto-aof-rewrite-percentage 0'],
    says: 'append-only file, fsync each second',
  },
  always: {
    settings: ['appendonly yes', 'appendfsync always', 'auto-aof-rewrite-percentage 0'],
    says: 'append-only file, fsync before each answer',
  },
} as const

/** What is kept on disk. */
export type Persistence = keyof typeof PERSISTENCES

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

export async function openRedis(persistence: Persistence = 'memory'): Promise<RedisUnderTest> {
  const { settings, says } = PERSISTENCES[persistence]
  const server = await startRedis({
    own: true,
    progress: line => process.stderr.write(`${line}\n`),
    ...(settings.length > 0 ? { settings } : {}),
  })
  const client = new Redis(server.url)
  client.on('error', () => undefined) // the next command tells
  const stop = async () => {
    client.disconnect()
    await server.stop()
  }
  try {
    for (const setting of settings) await check(client, setting)
  } catch (error) {
    await stop()
    throw error
  }
  return {
    url: server.url,
    choice: `${server.choice}, ${says}`,
    pid: server.pid,
    client,
    async reset() {
      await client.flushall()
      if (persistence !== 'memory') await shortenFile(client)
    },
    stop,
  }
}

async function check(client: Redis, setting: string): Promise<void> {
  const [name = '', wanted] = setting.split(' ')
  const [, is] = (await client.config('GET', name)) as string[]
  if (is !== wanted) throw new Error(`this Redis has ${name} ${is}, not ${wanted}`)
}

/** Or its file grows over the whole run, and is rewritten in the midst of somebody's measurement. */
async function shortenFile(client: Redis): Promise<void> {
  const rewritten = async () => {
    while (/aof_rewrite_(in_progress|scheduled):1/.test(await client.info('persistence'))) await pause(20)
  }
  await rewritten() // Redis may have begun by itself, and refuses a second one
  await client.bgrewriteaof()
  await rewritten()
}
