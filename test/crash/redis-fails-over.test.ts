import { Redis } from 'ioredis'
import { afterEach, describe, expect, it } from 'vitest'
import { type Store, startRedis } from '../../src/dev/index.ts'
import { defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { useRedis } from '../support/own-redis.ts'
import { counter, eventually } from '../support/signals.ts'

const database = useDatabase()
const redis = useRedis()
let replica: Store | undefined
afterEach(async () => {
  redis.proxy.leadTo(redis.server.url)
  await replica?.stop()
})
const deployment = useDeployment(database, { redis })

const task = defineTask<number>({ name: 'anything' })
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

describe('Redis fails over to a stale replica', () => {
  it('[X2] the sequence does not follow: a new generation begins, and everything runs once', async () => {
    const done = counter()
    const worker = await deployment.worker({ handlers: [task.handle(() => done.add())] })
    const producer = deployment.producer({ tasks: [task] })
    const first = await producer.enqueueMany(task, numbers(20))
    await done.reached(20)
    await eventually(
      'all is settled',
      async () => (await database.rows('select from longshore.jobs')).length === 0,
    )

    replica = await startRedis({ replicaOf: redis.server })
    const promoted = new Redis(replica.url)
    promoted.on('error', () => undefined)
    try {
      await promoted.replicaof('NO', 'ONE')
      // The primary goes on, and nobody tells the other.
      const middle = await producer.enqueueMany(task, numbers(300))
      await done.reached(320)
      const primary = await redis.root(database)
      const behind = await promoted.hmget(await redis.rootKey(database), 'generation', 'seq')
      expect(behind[0]).toBe(primary?.generation)
      expect(Number(behind[1])).toBeLessThan(Number(primary?.seq))

      redis.proxy.leadTo(replica.url)
      const last = await producer.enqueueMany(task, numbers(100))
      await done.reached(420)
      await eventually('jobs come through the promoted one', async () => {
        const [generation] = await promoted.hmget(await redis.rootKey(database), 'generation')
        return generation !== primary?.generation && worker.path === 'redis'
      })
      const more = await producer.enqueueMany(task, numbers(100))
      await done.reached(520)
      await deployment.atRest({ enqueued: [...first, ...middle, ...last, ...more] })
      expect(await deployment.runs()).toHaveLength(520)
    } finally {
      promoted.disconnect()
    }
  })
})
