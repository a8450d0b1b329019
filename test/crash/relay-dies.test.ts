import { afterEach, describe, expect, it } from 'vitest'
import { createRelay, defineTask } from '../../src/index.ts'
import { scriptNamed } from '../../src/redis/scripts.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { endAtBarrier } from '../support/locks.ts'
import { useRedis } from '../support/own-redis.ts'
import { startProxy } from '../support/proxy.ts'
import { useRelayProcesses } from '../support/relay-process.ts'
import { counter, eventually } from '../support/signals.ts'
import { pauseAt, weakened } from '../support/weaken.ts'

const database = useDatabase()
const ends: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const end of ends.splice(0)) await end()
})
const redis = useRedis()
const deployment = useDeployment(database, { redis, bringsRelays: true })
const startRelay = useRelayProcesses(database, deployment)

const task = defineTask<number>({ name: 'anything' })
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)
const startTwo = async () => {
  const leader = await startRelay()
  await leader.leads()
  return { leader, standby: await startRelay() }
}

describe('a relay', () => {
  it('[X7] that leads is killed: jobs go on meanwhile, the standby takes over and goes on with what Redis holds', async () => {
    const { leader, standby } = await startTwo()
    const done = counter()
    const worker = await deployment.worker({ handlers: [task.handle(() => done.add())] })
    const producer = deployment.producer({ tasks: [task], redis: redis.url })
    await producer.enqueueMany(task, numbers(100))
    await done.reached(100)
    const before = await redis.root(database)
    await leader.kill()
    await producer.enqueueMany(task, numbers(200))
    await done.reached(300)
    await standby.leads()
    await eventually('jobs come through Redis again', async () => {
      const now = await redis.root(database)
      return worker.path === 'redis' && Number(now?.epoch) > Number(before?.epoch)
    })
    expect((await redis.root(database))?.generation).toBe(before?.generation)
    await producer.enqueueMany(task, numbers(100))
    await done.reached(400)
    await deployment.atRest()
    expect(await deployment.runs()).toHaveLength(400)
  })

  it('[X7] two lead, since one was paused past its lease: what the lower epoch says is refused', async () => {
    const way = await startProxy(redis.server.url)
    ends.push(way.close)
    const leader = await startRelay({ redis: way.url })
    await leader.leads()
    const standby = await startRelay()
    const done = counter()
    const worker = await deployment.worker({ handlers: [task.handle(() => done.add())] })
    const producer = deployment.producer({ tasks: [task] })
    // In the middle of its work: what it says arrives when another leads.
    const said = way.holdRequest(scriptNamed('place').sha)
    const refs = await producer.enqueueMany(task, numbers(300))
    await said
    leader.pause()
    await standby.leads()
    await eventually('jobs come through Redis again', async () => worker.path === 'redis')
    await done.reached(300)
    const root = await redis.root(database)
    const refused = way.hearsReply('FENCED')
    way.letFlow()
    await refused
    leader.resume()
    await leader.leadsNoMore()
    refs.push(...(await producer.enqueueMany(task, numbers(100))))
    await deployment.atRest({ enqueued: refs })
    const after = await redis.root(database)
    expect(after).toMatchObject({ epoch: root?.epoch, generation: root?.generation })
    const [row] = await database.rows<{ epoch: string }>('select epoch::text from longshore.leader')
    expect(row?.epoch).toBe(after?.epoch)
    expect(await deployment.runs()).toHaveLength(400)
  })

  it('[S10] [X7] dies between apply and delete: the next applies it again, to the same state', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const { leader, standby } = await startTwo()
    await producer.enqueue(task, 0)
    const inRedis = (count: number) =>
      eventually(`${count} jobs are in Redis`, async () => {
        return (await redis.command('HLEN', await redis.key(database, 'jobs'))) === count + 1 // one entry is always there
      })
    await inRedis(1)
    const outbox = () => database.rows('select id from longshore.outbox order by id')
    await eventually('the outbox is empty', async () => (await outbox()).length === 0)
    const blocker = await database.connect()
    const pause = { name: 'relay_read', point: 'before-delete', insertion: pauseAt(4711) }
    await weakened(database, [pause], async () => {
      await blocker.query('select pg_advisory_lock(4711)')
      await producer.enqueueMany(task, numbers(50))
      await inRedis(51)
      expect((await outbox()).length).toBeGreaterThan(0)
      await leader.kill()
      await endAtBarrier(database, 'relay_read')
      expect((await outbox()).length).toBeGreaterThan(0)
    })
    const content = async () => {
      const jobs = (await redis.command('HGETALL', await redis.key(database, 'jobs'))) as string[]
      return jobs.filter((id, n) => n % 2 === 0 && id !== '').sort()
    }
    const before = { root: await redis.root(database), ids: await content() }
    await blocker.query('select pg_advisory_unlock(4711)')
    await standby.leads()
    await eventually('the outbox is empty', async () => (await outbox()).length === 0)
    expect(await content()).toEqual(before.ids)
    expect((await redis.root(database))?.generation).toBe(before.root?.generation)

    const done = counter()
    await deployment.worker({ handlers: [task.handle(() => done.add())] })
    await done.reached(51)
    await deployment.atRest()
    expect(await deployment.runs()).toHaveLength(51)
  })

  it('[X3] there is none any more: workers go direct and nothing waits, until there is one again', async () => {
    const relay = await startRelay()
    await relay.leads()
    const done = counter()
    const worker = await deployment.worker({ handlers: [task.handle(() => done.add())] })
    const producer = deployment.producer({ tasks: [task], redis: redis.url })
    await relay.kill()
    await producer.enqueueMany(task, numbers(100))
    await done.reached(100)
    await eventually('jobs come directly from Postgres', async () => worker.path === 'direct')
    const ref = await producer.enqueue(task, 0, { delay: '50ms' })
    expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded' })
    await (await startRelay()).leads()
    await eventually('jobs come through Redis again', async () => worker.path === 'redis')
    await producer.enqueueMany(task, numbers(100))
    await done.reached(201)
    await deployment.atRest()
    expect(await deployment.runs()).toHaveLength(201)
  })
})

describe('a relay whose connection breaks while it starts', () => {
  it.each(['server_version_num', 'deployment', 'listen'])(
    '[S10] (at %s) tries again, and leads',
    async call => {
      const proxy = await startProxy(database.url)
      const lost = proxy.loseReplyTo(call)
      const relay = createRelay({ postgres: proxy.url, redis: redis.url })
      try {
        await relay.start()
        await lost
        await eventually('it leads', async () => relay.metrics().isLeader)
      } finally {
        await relay.stop()
        await proxy.close()
      }
    },
  )
})
