/** The audit over both stores finds what is wrong: each test damages one thing behind everybody's back. */
import { Redis } from 'ioredis'
import { afterAll, beforeEach, describe, expect, inject, it } from 'vitest'
import { audit, createRelay, defineTask, type Relay } from '../../src/index.ts'
import { UNBUILT_SEQ } from '../../src/postgres/relay-reads.ts'
import { rootKey } from '../../src/redis/names.ts'
import { auditDispatch } from '../../src/relay/audit-dispatch.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { eventually } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database, { audit: false, because: 'each test leaves damage behind' })
const redis = inject('redisUrl')
const client = new Redis(redis)
const db = {
  query: async (text: string, values?: unknown[]) => ({ rows: await database.rows(text, values) }),
}
const task = defineTask<number>({ name: 'audited' })
const told = async () =>
  (await auditDispatch(db, { redis, looks: 2 })).map(({ invariant, problem }) => `${invariant}: ${problem}`)

/** Ten ready jobs that Redis knows, and a relay that has stopped: nobody repairs. */
let key: (name: string) => string
let root: string
let ids: string[]
let lane: string
beforeEach(async () => {
  const [settings] = await database.rows<{ deployment: string }>('select deployment from longshore.settings')
  root = rootKey(settings?.deployment ?? '', 'default')
  await client.del(root) // of the test before
  const relay: Relay = createRelay({ postgres: database.urlOf('relay'), redis })
  await relay.start()
  const producer = deployment.producer({ tasks: [task] })
  await producer.enqueueMany(
    task,
    Array.from({ length: 10 }, (_, n) => n),
  )
  const generation = () => client.hget(root, 'generation')
  await eventually(
    'Redis knows all of them',
    async () => (await client.hlen(`${root}:${await generation()}:jobs`)) === 11,
  )
  const begun = await generation()
  key = name => `${root}:${begun}:${name}`
  await eventually('everything is in order', async () => (await told()).length === 0)
  await relay.stop()
  ids = (await client.hkeys(key('jobs'))).filter(id => id !== '') // one entry is always there
  lane = (await client.smembers(key('lanes')))[0] ?? ''
})
afterAll(() => client.disconnect())

describe('the audit of both stores tells', () => {
  it('nothing when everything is in order', async () => {
    expect(await told()).toEqual([])
  })

  it('[S10] invariant 10: of a ready job that Redis does not know', async () => {
    await client.zrem(key(`lane:${lane}`), ids[0] as string)
    await client.hdel(key('jobs'), ids[0] as string)
    expect(await told()).toEqual([expect.stringMatching(/^10: it is ready in lane .*Redis does not know it/)])
    const postgres = database.urlOf('relay')
    expect(await audit({ postgres })).toEqual([])
    expect(await audit({ postgres, redis })).toMatchObject([{ invariant: 10, jobId: ids[0] }])
  })

  it('[S10] invariant 10: not of one that stands in the outbox, or behind its lane’s bound', async () => {
    const last = (await client.zrange(key(`lane:${lane}`), '-1', '-1', 'WITHSCORES')) as [string, string]
    await client.zrem(key(`lane:${lane}`), last[0], ids[0] as string)
    await client.hdel(key('jobs'), last[0], ids[0] as string)
    await client.hset(key(`lane-facts:${lane}`), 'bound-score', last[1], 'bound-id', last[0])
    await client.sadd(key('bounded'), lane)
    await client.sadd(key('low'), lane)
    await database.rows('insert into longshore.outbox (jobs) values (array[$1]::uuid[])', [ids[0]])
    expect(await told()).toEqual([])
  })

  it('[S10] invariant 11: of an id in Redis that is not ready', async () => {
    await database.rows('delete from longshore.jobs where id = $1', [ids[0]])
    expect(await told()).toEqual([expect.stringMatching(/^11: Redis holds it .*not ready/)])
  })

  it('[D5] invariant 11: of a reverse index that is not what the queues hold', async () => {
    await client.hset(key('held'), ids[0] as string, '77')
    expect(await told()).toEqual(expect.arrayContaining([expect.stringMatching(/^11: queue default/)]))
  })

  it('invariant 12: of a Redis that is behind what Postgres has forgotten', async () => {
    await database.rows('update longshore.relayed set seq = 1000')
    expect(await told()).toEqual([expect.stringMatching(/^12: .*behind 1000/)])
    // It is being built.
    await database.rows('update longshore.relayed set seq = $1', [UNBUILT_SEQ])
    expect(await told()).toEqual([])
  })

  it('invariant 12: of another generation, of an epoch that nobody was elected to, and of an empty Redis', async () => {
    await client.hset(root, 'epoch', '99')
    expect(await told()).toEqual([expect.stringMatching(/^12: .*epoch 99/)])
    await database.rows("update longshore.relayed set generation = 'other'")
    expect(await told()).toEqual(expect.arrayContaining([expect.stringMatching(/^12: .*generation/)]))
    await client.del(root)
    expect(await told()).toEqual(['12: queue default is not in Redis'])
  })
})
