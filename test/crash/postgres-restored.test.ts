import { cp, rm } from 'node:fs/promises'
import { Redis } from 'ioredis'
import { afterEach, describe, expect, it } from 'vitest'
import { type Store, startPostgres, startRedis } from '../../src/dev/index.ts'
import { giveToServer } from '../../src/dev/server-user.ts'
import {
  createProducer,
  createRelay,
  createWorker,
  defineTask,
  migrate,
  type Producer,
  type Relay,
  type Worker,
} from '../../src/index.ts'
import { rootKey } from '../../src/redis/names.ts'
import { auditAtRest } from '../support/at-rest.ts'
import { rowsAt } from '../support/database.ts'
import { createJournal } from '../support/journal.ts'
import { counter, eventually } from '../support/signals.ts'

const ends: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})

const task = defineTask<number>({ name: 'anything' })
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

const startStores = async () => {
  const [postgres, redis] = await Promise.all([startPostgres({ own: true }), startRedis({ own: true })])
  ends.push(
    () => postgres.stop(),
    () => redis.stop(),
  )
  await migrate({ postgres: postgres.url })
  const looker = new Redis(redis.url)
  ends.push(async () => looker.disconnect())
  const ask = rowsAt(postgres.url)
  const journal = createJournal({ rows: ask })
  await journal.install()
  const deployment = String((await ask('select deployment from longshore.settings'))[0]?.deployment)
  const root = async () => {
    const [generation, epoch] = await looker.hmget(rootKey(deployment, 'default'), 'generation', 'epoch')
    return { generation, epoch: Number(epoch) }
  }
  return { postgres, redis, ask, journal, root }
}

/** What a snapshot of the disk holds. */
const snapshot = async (postgres: Store) => {
  const folder = String(postgres.dataDir)
  const copy = `${folder}-snapshot`
  ends.push(() => rm(copy, { recursive: true, force: true }))
  const replace = async (from: string, to: string) => {
    await postgres.kill()
    await rm(to, { recursive: true, force: true })
    await cp(from, to, { recursive: true, preserveTimestamps: true })
    await giveToServer(to)
    await postgres.restart()
  }
  await replace(folder, copy)
  return { restore: () => replace(copy, folder) }
}

describe('Postgres restored to an older state', () => {
  it('[X2] [X7] the relay goes above both epochs, begins a new generation, and jobs go through Redis again', async () => {
    const { postgres, redis, ask, journal, root } = await startStores()
    const where = { postgres: postgres.url, redis: redis.url }
    const done = counter()
    const start = async <T extends Worker | Relay>(one: T): Promise<T> => {
      ends.push(() => one.stop())
      await one.start()
      return one
    }
    const relay = await start(createRelay(where))
    const producer: Producer = createProducer({ postgres: postgres.url, tasks: [task] })
    ends.push(() => producer.close())
    await producer.enqueueMany(task, numbers(10))
    await eventually('Redis is in step', async () => (await root()).generation !== null)
    await relay.stop()
    const { restore } = await snapshot(postgres)

    // Leaders come and go; jobs run, and more are made.
    for (let term = 0; term < 5; term++) {
      const next = createRelay(where)
      await next.start()
      await eventually('it leads', async () => next.metrics().isLeader)
      await next.stop()
    }
    const worker = await start(
      createWorker({ ...where, abortGrace: 50, handlers: [task.handle(() => done.add())] }),
    )
    const last = await start(createRelay(where))
    await eventually('jobs come through Redis', async () => worker.path === 'redis')
    await producer.enqueueMany(task, numbers(50))
    await done.reached(60)
    const seen = await root()

    await restore()
    const [restored] = await ask('select epoch::int from longshore.leader')
    expect(restored?.epoch).toBeLessThan(seen.epoch)
    await eventually(
      'jobs come through Redis, of another generation',
      async () => {
        const now = await root()
        return worker.path === 'redis' && now.generation !== seen.generation && last.metrics().isLeader
      },
      30_000,
    )
    const [raised] = await ask('select epoch::int from longshore.leader')
    expect(raised?.epoch).toBeGreaterThan(seen.epoch)
    expect((await root()).epoch).toBe(raised?.epoch)

    // The ten that were ready in the snapshot run again; what came after it is gone.
    await done.reached(70)
    await producer.enqueueMany(task, numbers(20))
    await done.reached(90)
    await auditAtRest({ rows: ask }, journal, redis.url)
    expect(done.count).toBe(90)
  })
})
