/** A bell tells of the job that it rings for. It is a hint as any other: late, wrong or doubled, it does no harm. */
import { describe, expect, it } from 'vitest'
import { defineTask, type JobRef } from '../../src/index.ts'
import { bellChannel } from '../../src/redis/names.ts'
import { scriptNamed } from '../../src/redis/scripts.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { standsAtBarrier } from '../support/locks.ts'
import { useRedis } from '../support/own-redis.ts'
import { counter, eventually } from '../support/signals.ts'
import { pauseAt, weakened } from '../support/weaken.ts'

const database = useDatabase()
const redis = useRedis()
const deployment = useDeployment(database, { redis })

const task = defineTask<number>({ name: 'anything' })
// One entry is always there.
const size = async (name: string) => Number(await redis.command('HLEN', await redis.key(database, name))) - 1
const idle = async () => redis.command('ZCARD', await redis.key(database, 'idle'))
const allIdle = (count: number) =>
  eventually('all of them wait to be rung', async () => (await idle()) === count)
const forgotten = () =>
  eventually(
    'Redis holds nothing of them',
    async () => (await size('taken')) === 0 && (await size('jobs')) === 0,
  )

/** To all workers, of a job as it was before its first run. */
async function offer({ id }: Pick<JobRef, 'id'>): Promise<void> {
  const rows = await database.rows<{ deployment: string; worker: number; lane: number }>(
    `select s.deployment, w.id as worker, l.id as lane
     from longshore.settings s, longshore.workers w, longshore.lanes l where l.task = 'anything'`,
  )
  const { generation } = (await redis.root(database)) ?? {}
  for (const { deployment: name, worker, lane } of rows) {
    const told = await redis.command('PUBLISH', bellChannel(name, worker), `${generation} ${id} ${lane} 0`)
    expect(told).toBe(1)
  }
}

describe('a bell that tells of a job', () => {
  it('[S10] brings the claim before the take: its reply may be lost, and Redis forgets the job', async () => {
    const done = counter()
    const worker = await deployment.worker({ handlers: [task.handle(() => done.add())] })
    const producer = deployment.producer({ tasks: [task], redis: redis.url })
    await producer.enqueue(task, 0)
    await done.reached(1)
    await allIdle(1)
    const lost = redis.proxy.loseReplyTo(scriptNamed('take_offered').sha)
    await producer.enqueue(task, 1)
    await lost
    await done.reached(2)
    await eventually('jobs come through Redis again', async () => worker.path === 'redis')
    await producer.enqueue(task, 2)
    await done.reached(3)
    await forgotten()
    await deployment.atRest()
    expect(await deployment.runs()).toHaveLength(3)
  })

  it('[S10] leaves the job to whoever is first: another worker has taken it, before or after', async () => {
    const done = counter()
    const run = () => done.add()
    for (const _ of [1, 2]) await deployment.worker({ handlers: [task.handle(run)] })
    const producer = deployment.producer({ tasks: [task], redis: redis.url })
    const blocker = await database.connect()
    const pause = { name: 'settle_and_claim', point: 'start', insertion: pauseAt(4714) }
    for (const round of [0, 1, 2]) {
      await allIdle(2)
      await weakened(database, [pause], async () => {
        await blocker.query('select pg_advisory_lock(4714)')
        const ref = await producer.enqueue(task, round)
        await standsAtBarrier(database, 'settle_and_claim', 1)
        // Whoever was not rung hears of it now, while the other is about to claim it.
        await offer(ref)
        await standsAtBarrier(database, 'settle_and_claim', 2)
        await blocker.query('select pg_advisory_unlock(4714)')
      })
      await done.reached(round + 1)
    }
    await forgotten()
    await deployment.atRest()
    expect(await deployment.runs()).toHaveLength(3)
  })

  it('[S10] does nothing when the job has ended, or is none', async () => {
    const done = counter()
    await deployment.worker({ handlers: [task.handle(() => done.add())] })
    const producer = deployment.producer({ tasks: [task], redis: redis.url })
    const ref = await producer.enqueue(task, 0)
    await done.reached(1)
    await forgotten()
    await allIdle(1)
    for (const id of [ref.id, crypto.randomUUID(), 'no id']) await offer({ id: id as JobRef['id'] })
    await producer.enqueue(task, 1)
    await done.reached(2)
    await forgotten()
    await deployment.atRest()
    expect(await deployment.runs()).toHaveLength(2)
  })

  it('[S10] hides no bell of another queue that comes in the same moment', async () => {
    const done = counter()
    const other = defineTask<number>({ name: 'other', queue: 'other' })
    const run = () => done.add()
    // Past the proxy, which holds both bells back for a moment.
    const relay = await deployment.relay({ redis: redis.server.url })
    await deployment.worker({ handlers: [task.handle(run), other.handle(run)] })
    const producer = deployment.producer({ tasks: [task, other], redis: redis.server.url })
    const inBoth = (name: string) =>
      eventually(`${name} in both queues`, async () => {
        const keys = (await redis.command('KEYS', `*:${name}`)) as string[]
        return keys.length === 2
      })
    await Promise.all([producer.enqueue(task, 0), producer.enqueue(other, 0)])
    for (const round of [1, 2, 3]) {
      await done.reached(2 * round)
      await inBoth('idle')
      redis.proxy.holdAll()
      await Promise.all([producer.enqueue(task, round), producer.enqueue(other, round)])
      await inBoth('rung')
      redis.proxy.letFlow()
    }
    await done.reached(8)
    await deployment.atRest()
    // A machine that stands still for a second may lose one.
    expect(relay.metrics().bells).toBeLessThan(3)
  })
})
