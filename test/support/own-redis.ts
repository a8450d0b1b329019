/** A Redis of its own for a test file, to be killed, emptied and cut off, behind a proxy. Empty before each test. */
import { Redis } from 'ioredis'
import { afterAll, beforeAll, beforeEach } from 'vitest'
import { type Store, startRedis } from '../../src/dev/index.ts'
import { rootKey } from '../../src/redis/names.ts'
import type { TestDatabase } from './database.ts'
import { type StoreProxy, startProxy } from './proxy.ts'

/** What Redis knows of a queue's content as a whole. */
export interface Root {
  generation: string
  epoch: string
  seq: string
}

export interface TestRedis {
  /** Through the proxy. */
  readonly url: string
  readonly server: Store
  readonly proxy: StoreProxy
  /** A command to the server itself, past the proxy. */
  command(name: string, ...args: string[]): Promise<unknown>
  /** Of the queue `default`; undefined while Redis knows nothing of it. */
  root(database: TestDatabase): Promise<Root | undefined>
  rootKey(database: TestDatabase): Promise<string>
  /** A key of the queue `default` in the generation that is there. */
  key(database: TestDatabase, name: string): Promise<string>
}

/** Call before `useDeployment`: then it outlives what that takes down. */
export function useRedis(options: { settings?: readonly string[] } = {}): TestRedis {
  let server: Store
  let proxy: StoreProxy
  beforeAll(async () => {
    server = await startRedis({ own: true, ...options })
    proxy = await startProxy(server.url)
  })
  beforeEach(async () => {
    proxy.letFlow()
    await command('FLUSHALL')
  })
  afterAll(async () => {
    await proxy?.close()
    await server?.stop()
  })

  const command = async (name: string, ...args: string[]) => {
    const client = new Redis(server.url, { maxRetriesPerRequest: 50 })
    client.on('error', () => undefined) // it comes back
    try {
      return await client.call(name, ...args)
    } finally {
      client.disconnect()
    }
  }
  const rootOf = async (database: TestDatabase) => {
    const [row] = await database.rows<{ deployment: string }>('select deployment from longshore.settings')
    return rootKey(String(row?.deployment), 'default')
  }
  const root = async (database: TestDatabase) => {
    const fields = (await command('HMGET', await rootOf(database), 'generation', 'epoch', 'seq')) as string[]
    const [generation, epoch, seq] = fields
    return generation ? { generation, epoch: String(epoch), seq: String(seq) } : undefined
  }

  return {
    get url() {
      return proxy.url
    },
    get server() {
      return server
    },
    get proxy() {
      return proxy
    },
    command,
    root,
    rootKey: rootOf,
    async key(database, name) {
      return `${await rootOf(database)}:${(await root(database))?.generation}:${name}`
    },
  }
}
