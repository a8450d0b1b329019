import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { useRedis } from '../support/own-redis.ts'
import { useRelayProcesses } from '../support/relay-process.ts'
import { counter, eventually } from '../support/signals.ts'
import { pauseAt, weakened } from '../support/weaken.ts'

const database = useDatabase()
const redis = useRedis()
const deployment = useDeployment(database, { redis, bringsRelays: true })
const startRelay = useRelayProcesses(database, deployment)

const task = defineTask<number>({ name: 'anything' })
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)
const allEnd = () =>
  eventually(
    'nothing is unfinished',
    async () => (await database.rows('select from longshore.jobs limit 1')).length === 0,
    30_000,
  )

const startTwo = async () => {
  const leader = await startRelay()
  await leader.leads()
  return { leader, standby: await startRelay() }
}

describe('the leading relay', () => {
  it('[X7] killed: jobs go on meanwhile, the standby takes over and goes on with what Redis holds', async () => {
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
    await allEnd()
    expect(await deployment.runs()).toHaveLength(400)
  })

  it('[X7] paused past its lease: after it wakes, nothing that it says counts', async () => {
    const { leader, standby } = await startTwo()
    const done = counter()
    const worker = await deployment.worker({ handlers: [task.handle(() => done.add())] })
    const producer = deployment.producer({ tasks: [task], redis: redis.url })
    // In the middle of its work.
    const flowing = producer.enqueueMany(task, numbers(300))
    leader.pause()
    await flowing
    await standby.leads()
    await eventually('jobs come through Redis again', async () => worker.path === 'redis')
    await done.reached(300)
    const root = await redis.root(database)
    leader.resume()
    await leader.leadsNoMore()
    await producer.enqueueMany(task, numbers(100))
    await done.reached(400)
    await allEnd()
    const after = await redis.root(database)
    expect(after).toMatchObject({ epoch: root?.epoch, generation: root?.generation })
    const [row] = await database.rows<{ epoch: string }>('select epoch::text from longshore.leader')
    expect(row?.epoch).toBe(after?.epoch)
    expect(await deployment.runs()).toHaveLength(400)
  })

  it('[S10] [X7] killed between apply and delete: the next applies it again, to the same state', async () => {
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
    const remove = '    delete from longshore.outbox'
    const pause = { name: 'relay_read', remove, replacement: `    ${pauseAt(4711)}\n${remove}` }
    await weakened(database, [pause], async () => {
      await blocker.query('select pg_advisory_lock(4711)')
      await producer.enqueueMany(task, numbers(50))
      await inRedis(51)
      expect((await outbox()).length).toBeGreaterThan(0)
      await leader.kill()
      // Its statement would go on after the barrier, and delete.
      await eventually('its last statement is gone', async () => {
        const rows = await database.rows(
          `select pg_terminate_backend(pid) from pg_stat_activity
           where datname = current_database() and wait_event = 'advisory' and query like '%relay_read%'`,
        )
        return rows.length === 0
      })
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
    await allEnd()
    expect(await deployment.runs()).toHaveLength(51)
  })

  it('[X3] gone with nobody to follow: workers go direct and nothing waits, until there is one again', async () => {
    const relay = await startRelay()
    await relay.leads()
    const done = counter()
    const worker = await deployment.worker({ handlers: [task.handle(() => done.add())] })
    const producer = deployment.producer({ tasks: [task], redis: redis.url })
    await relay.kill()
    await producer.enqueueMany(task, numbers(100))
    await done.reached(100)
    await eventually('jobs come straight from Postgres', async () => worker.path === 'direct')
    const ref = await producer.enqueue(task, 0, { delay: '50ms' })
    expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded' })
    await (await startRelay()).leads()
    await eventually('jobs come through Redis again', async () => worker.path === 'redis')
    await producer.enqueueMany(task, numbers(100))
    await done.reached(201)
    await allEnd()
    expect(await deployment.runs()).toHaveLength(201)
  })
})
