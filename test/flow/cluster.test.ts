/** Stores other than one Redis: a cluster of three nodes, and Valkey. */
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type RedisCluster, type Store, startRedis, startRedisCluster } from '../../src/dev/index.ts'
import { defineTask, LongshoreError, type Relay, type Worker } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { counter, eventually } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)
const LONG_MS = 60_000

describe('a Redis Cluster', () => {
  let cluster: RedisCluster | undefined
  let missing = ''
  beforeAll(async () => {
    try {
      // Else no node answers while one is away.
      cluster = await startRedisCluster({ settings: ['cluster-require-full-coverage no'] })
    } catch (error) {
      if (!(error instanceof LongshoreError && error.code === 'STORE_UNSUPPORTED')) throw error
      missing = error.message
    }
  })
  afterAll(() => cluster?.stop())

  /** A queue on each node: names are tried until their slot lies there. */
  async function queueOnEach(nodes: readonly Store[]): Promise<string[]> {
    const client = new Redis(nodes[0]?.url ?? '')
    const found: string[] = []
    for (let n = 0; found.filter(Boolean).length < nodes.length; n++) {
      const slot = Number(await client.cluster('KEYSLOT', `{queue-${n}}`))
      found[Math.floor((slot * nodes.length) / 16_384)] ??= `queue-${n}`
    }
    client.disconnect()
    return found
  }

  it('[X7] has queues on every node; a node that dies takes only its own off Redis, until it is back', async context => {
    if (!cluster) return context.skip(missing)
    const { nodes, url: redis } = cluster
    const queues = await queueOnEach(nodes)
    const tasks = queues.map(queue => defineTask<number>({ name: `on ${queue}`, queue }))
    const relay: Relay = await deployment.relay({ redis })
    const counters = tasks.map(() => counter())
    const workers: Worker[] = []
    for (const [at, task] of tasks.entries()) {
      const handlers = [task.handle(() => counters[at]?.add())]
      for (const _ of [1, 2]) workers.push(await deployment.worker({ redis, handlers }))
    }
    const producer = deployment.producer({ redis, tasks })
    const pathsAre = (...paths: Worker['path'][]) =>
      eventually(
        `the paths are ${paths}`,
        async () => workers.every((worker, n) => worker.path === paths[n >> 1]),
        LONG_MS,
      )
    let enqueued = 0
    const enqueueEach = async (count: number) => {
      for (const task of tasks) await producer.enqueueMany(task, numbers(count))
      enqueued += count
    }
    const allRan = () => Promise.all(counters.map(each => each.reached(enqueued)))

    await pathsAre('redis', 'redis', 'redis')
    await enqueueEach(300)
    await allRan()
    // Each queue lies on its node, and nowhere else.
    const rootsOn = async (node: Store) => {
      const client = new Redis(node.url)
      const keys = await client.keys('longshore:*}:2')
      client.disconnect()
      return keys.map(key => /{(.*)}/.exec(key)?.[1])
    }
    for (const [at, node] of nodes.entries()) expect(await rootsOn(node)).toEqual([queues[at]])

    const generationOf = (queue: string | undefined) =>
      relay.metrics().queues.find(({ name }) => name === queue)?.generation
    const before = queues.map(generationOf)
    await enqueueEach(200)
    await nodes[1]?.kill()
    await enqueueEach(200)
    await allRan()
    await pathsAre('redis', 'direct', 'redis')
    await enqueueEach(100)
    await allRan()
    expect([generationOf(queues[0]), generationOf(queues[2])]).toEqual([before[0], before[2]])

    await nodes[1]?.restart()
    await pathsAre('redis', 'redis', 'redis')
    await enqueueEach(100)
    await allRan()
    expect(generationOf(queues[1])).not.toBe(before[1])
    expect(counters.map(each => each.count)).toEqual(queues.map(() => enqueued))
  }, 180_000)
})

describe('Valkey', () => {
  it('[X7] does what Redis does', async () => {
    const valkey = await startRedis({ own: true, env: { ...process.env, LONGSHORE_REDIS: 'wasm' } })
    try {
      expect(valkey.choice).toContain('Valkey')
      const redis = valkey.url
      const plain = defineTask<number>({ name: 'plain' })
      const limited = defineTask<number>({ name: 'limited', concurrency: 3 })
      await deployment.relay({ redis })
      const done = counter()
      const handlers = [plain.handle(() => done.add()), limited.handle(() => done.add())]
      const worker = await deployment.worker({ redis, handlers, properties: { gpu: 'a100' } })
      await eventually('jobs come through Valkey', async () => worker.path === 'redis', LONG_MS)
      const producer = deployment.producer({ redis, tasks: [plain, limited] })
      await producer.enqueueMany(plain, numbers(200), { priority: 1 })
      await producer.enqueueMany(plain, numbers(100), { constraints: { gpu: 'a100' } })
      await producer.enqueueMany(limited, numbers(60))
      await producer.enqueue(plain, 1, { delay: 50 })
      await done.reached(361)
      const client = new Redis(redis)
      await client.flushall()
      client.disconnect()
      await producer.enqueueMany(plain, numbers(100))
      await done.reached(461)
      await eventually('jobs come through Valkey again', async () => worker.path === 'redis', LONG_MS)
    } finally {
      await valkey.stop()
    }
  }, 120_000)
})
