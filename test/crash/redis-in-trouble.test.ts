import { afterEach, describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { useRedis } from '../support/own-redis.ts'
import { counter, eventually } from '../support/signals.ts'

const database = useDatabase()
const redis = useRedis()
afterEach(async () => {
  wake()
  await redis.command('CONFIG', 'SET', 'maxmemory', '0')
})
/** It still has its connections, and does nothing. */
const freeze = () => process.kill(Number(redis.server.pid), 'SIGSTOP')
const wake = () => process.kill(Number(redis.server.pid), 'SIGCONT')
const deployment = useDeployment(database, { redis })

const task = defineTask<number>({ name: 'anything' })
const later = defineTask<number>({ name: 'later' })
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

describe('Redis', () => {
  it('[X2] [S10] out of memory: jobs run all the same, none is lost, and it heals when there is room', async () => {
    const done = counter()
    const worker = await deployment.worker({ handlers: [task.handle(() => done.add())] })
    const producer = deployment.producer({ tasks: [task], redis: redis.url })
    await producer.enqueueMany(task, numbers(100))
    await done.reached(100)
    await redis.command('CONFIG', 'SET', 'maxmemory', '1')
    await producer.enqueueMany(task, numbers(500))
    await done.reached(600)
    await eventually('jobs come directly from Postgres', async () => worker.path === 'direct')
    for (const n of numbers(20)) {
      await producer.enqueue(task, n)
      await done.reached(601 + n)
    }
    // Nobody runs these, so they are to be found in Redis when it has room again.
    await producer.enqueueMany(later, numbers(50))
    await redis.command('CONFIG', 'SET', 'maxmemory', '0')
    await eventually('jobs come through Redis again', async () => worker.path === 'redis')
    await eventually('it holds what it had no room for', async () => {
      return Number(await redis.command('HLEN', await redis.key(database, 'jobs'))) - 1 === 50 // one entry is always there
    })
    await deployment.worker({ handlers: [later.handle(() => undefined)] })
    await producer.enqueueMany(task, numbers(100))
    await done.reached(720)
    await deployment.atRest()
    expect(await deployment.runs()).toHaveLength(770)
  })

  it('[S10] forgets its scripts (SCRIPT FLUSH): they are loaded again, and what it holds is gone on with', async () => {
    const done = counter()
    await deployment.worker({ handlers: [task.handle(() => done.add())] })
    const producer = deployment.producer({ tasks: [task], redis: redis.url })
    const generation = (await redis.root(database))?.generation
    for (let round = 1; round <= 10; round++) {
      await redis.command('SCRIPT', 'FLUSH')
      await producer.enqueueMany(task, numbers(50))
      await done.reached(50 * round)
    }
    await deployment.atRest()
    expect((await redis.root(database))?.generation).toBe(generation)
    expect(await deployment.runs()).toHaveLength(500)
  })

  it('[X3] slow, then silent: jobs run all the same, workers go direct meanwhile, and come back', async () => {
    const done = counter()
    const worker = await deployment.worker({ handlers: [task.handle(() => done.add())] })
    const producer = deployment.producer({ tasks: [task], redis: redis.url })
    redis.proxy.delay(150)
    await producer.enqueueMany(task, numbers(100))
    await done.reached(100)
    redis.proxy.letFlow()
    freeze()
    await producer.enqueueMany(task, numbers(500))
    await done.reached(600)
    await eventually('jobs come directly from Postgres', async () => worker.path === 'direct')
    await producer.enqueueMany(task, numbers(100))
    await done.reached(700)
    wake()
    await eventually('jobs come through Redis again', async () => worker.path === 'redis')
    await producer.enqueue(task, 0)
    await done.reached(701)
    await deployment.atRest()
    expect(await deployment.runs()).toHaveLength(701)
  })
})
