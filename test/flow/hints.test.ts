/** A producer publishes its hints, and the relay that leads places the jobs: with the users that the guide shows. */
import { randomUUID } from 'node:crypto'
import { Redis } from 'ioredis'
import { pino } from 'pino'
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest'
import { createRelay, defineTask, type Relay } from '../../src/index.ts'
import type { JobId } from '../../src/job/job-id.ts'
import { MOST_HINTED, writeHint } from '../../src/redis/hint-message.ts'
import { hintChannel } from '../../src/redis/names.ts'
import { dropRedisUsers, makeRedisUsers, type RedisRole } from '../support/acl.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { standsAtBarrier } from '../support/locks.ts'
import { counter, eventually } from '../support/signals.ts'
import { pauseAt, weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database, { redis: inject('redisUrl'), bringsRelays: true })
let users: Record<RedisRole, string>
let channel: string
let admin: Redis
/** Somebody who has the password of a producer, and no good intentions. */
let forger: Redis

beforeAll(async () => {
  const [row] = await database.rows<{ deployment: string }>('select deployment from longshore.settings')
  users = await makeRedisUsers(inject('redisUrl'), String(row?.deployment))
  channel = hintChannel(String(row?.deployment))
  admin = new Redis(inject('redisUrl'))
  forger = new Redis(users.producer, { enableReadyCheck: false })
})
afterAll(async () => {
  admin.disconnect()
  forger.disconnect()
  const refused = await dropRedisUsers(users, inject('redisUrl'))
  expect(refused.filter(what => !what.endsWith(channel))).toEqual([]) // on purpose, see below
})

beforeEach(async () => {
  for (const key of await admin.keys(`${channel.replace(/hint$/, '')}*`)) await admin.del(key)
})

const plain = defineTask<number>({ name: 'plain' })
const special = defineTask<number>({ name: 'special' })

const startRelay = async (): Promise<Relay> => {
  const relay = await deployment.relay({ redis: users.relay })
  await eventually('producers are heard', async () => (await hearing()) === 1)
  return relay
}
const hearing = async () => Number(((await admin.pubsub('NUMSUB', channel)) as unknown[])[1])
const laneOf = async (task: string) => {
  const [row] = await database.rows<{ id: number }>('select id from longshore.lanes where task = $1', [task])
  return Number(row?.id)
}
const isHinted = async (id: string) => {
  const [row] = await database.rows<{ hinted: boolean }>(
    'select hinted from longshore.outbox where $1 = any (jobs)',
    [id],
  )
  return row?.hinted
}
const forge = (queue: string, jobs: [id: string, lane: number, score: string][]) =>
  forger.publish(
    channel,
    writeHint(
      queue,
      jobs.map(([id, lane, score]) => ({ id: id as JobId, lane, score })),
    ),
  )

describe('a hint', () => {
  it('[S10] [X15] brings a job to a worker while the relay reads nothing from Postgres', async () => {
    await startRelay()
    const done = counter()
    await deployment.worker({ redis: users.worker, handlers: [plain.handle(() => done.add())] })
    const producer = deployment.producer({ tasks: [plain], redis: users.producer })
    await producer.enqueue(plain, 0)
    await done.reached(1)
    const blocker = await database.connect()
    await blocker.query('select pg_advisory_lock(4731)')
    const pause = { name: 'relay_read', point: 'start', insertion: pauseAt(4731) }
    await weakened(database, [pause], async () => {
      await standsAtBarrier(database, 'relay_read')
      for (let n = 2; n < 5; n++) {
        await producer.enqueue(plain, n)
        await done.reached(n)
      }
      await blocker.query('select pg_advisory_unlock(4731)')
    })
    await deployment.atRest()
  })

  it('[S10] is heard by the leader alone; while nobody hears it each commit wakes the relay', async () => {
    const relay = await startRelay()
    const standby = createRelay({ postgres: database.urlOf('relay'), redis: users.relay })
    await standby.start()
    expect(await hearing()).toBe(1)
    await standby.stop()
    await relay.stop()
    expect(await hearing()).toBe(0)
    const producer = deployment.producer({ tasks: [plain], redis: users.producer })
    let wasHinted = false
    deployment.skipAudit('no relay runs')
    await eventually('it has hinted, and then does not', async () => {
      const { id } = await producer.enqueue(plain, 1)
      if (await isHinted(id)) wasHinted = true
      else return wasHinted
      return false
    })
  })

  it('[S10] that Redis refuses is told once, and the next commits wake the relay', async () => {
    const said: string[] = []
    const logger = pino({ level: 'warn' }, { write: line => void said.push(String(JSON.parse(line).msg)) })
    const producer = deployment.producer({ tasks: [plain], redis: users.worker, logger })
    await database.rows("update longshore.settings set dispatch = 'redis'")
    deployment.skipAudit('no relay runs')
    await producer.enqueue(plain, 1)
    await eventually('it is connected', async () => {
      await producer.enqueue(plain, 1)
      return said.length > 0
    })
    expect(await isHinted((await producer.enqueue(plain, 1)).id)).toBe(false)
    expect(said).toEqual(['Redis cannot be used: the relay finds new jobs in Postgres'])
  })
})

describe('a forged hint', () => {
  it('[X15] runs nothing that is not to be run, and holds up nothing for longer than the outbox or the audit need', async () => {
    const relay = await startRelay()
    const producer = deployment.producer({ tasks: [plain, special] })
    const runs: string[] = []
    const later = await producer.enqueue(plain, 0, { delay: '1h' })
    const waits = await producer.enqueue(special, 0, { constraints: { gpu: 'a100' } })
    await producer.enqueue(plain, 0)
    await eventually('the queue is open', async () => relay.metrics().queues[0]?.isLive ?? false)
    const [plainLane, specialLane] = [await laneOf('plain'), await laneOf('special')]

    // Ids that are none, in front of all others; ids of jobs to come, where they will not stand.
    const early = Array.from({ length: 20 }, () => randomUUID())
    expect(
      await forge(
        'default',
        early.map(id => [id, specialLane, '0']),
      ),
    ).toBe(1)
    for (let n = 0; n < 5; n++)
      await forge(
        'default',
        Array.from({ length: MOST_HINTED }, () => [randomUUID(), plainLane, '0']),
      )
    // Of others: not due, not for who is there.
    await forge('default', [
      [later.id, plainLane, '0'],
      [waits.id, plainLane, '0'],
      [waits.id, specialLane, '0'],
    ])
    await forge('default', [[randomUUID(), 4711, '1']])
    await forge('no such queue', [[randomUUID(), plainLane, '1']])
    await forger.publish(channel, `1 default ${later.id} ${plainLane} nan`)
    await forger.publish(channel, 'x'.repeat(1_000_000))
    await eventually('what makes no sense is counted', async () => relay.metrics().ignoredHints === 3)
    for (const id of early) await producer.enqueue(plain, 0, { id })

    const handlers = [
      plain.handle(job => void runs.push(job.id)),
      special.handle(() => void runs.push('special')),
    ]
    await deployment.worker({ redis: users.worker, handlers: handlers.slice(0, 1) })
    await eventually('all that are ready have run', async () => runs.length === 21)
    expect(runs).toEqual(expect.arrayContaining(early))
    expect(new Set(runs).size).toBe(21)
    const left = await database.rows(
      "select id, state::text from longshore.jobs where state <> 'running' order by state::text",
    )
    expect(left).toEqual([
      { id: waits.id, state: 'ready' },
      { id: later.id, state: 'scheduled' },
    ])
    await deployment.worker({ redis: users.worker, handlers, properties: { gpu: 'a100' } })
    await eventually('so has that one', async () => runs.includes('special'))
    // Of what has ended, and of what runs.
    await forge(
      'default',
      early.map(id => [id, plainLane, '0']),
    )
    await producer.cancel(later)
    await deployment.atRest()
    expect(runs).toHaveLength(22)
  })
})
