/** What a leading relay asks of Redis and Postgres does not depend on the names of queues that were used once. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { FREE, type Ground, modelGround } from '../support/model-world.ts'
import { useRedis } from '../support/redis.ts'

const database = useDatabase()
const redis = useRedis()
let ground: Ground
beforeAll(async () => {
  ground = await modelGround(database, redis)
})
afterAll(() => ground?.close())

const QUEUES = Array.from({ length: 20 }, (_, n) => `used once ${n}`)

describe('queues that no worker serves', () => {
  it('[X12] cost no call of a beat or an audit once their jobs are cancelled, and are there again when a job comes', async () => {
    const world = await ground.begin()
    const side = world.redis
    if (!side) throw new Error('there is no Redis')
    const { relay, client } = side
    const { term } = relay
    const settle = async () => {
      for (let turns = 0; turns < 5; turns++) await relay.catchUp()
    }
    const scriptCalls = async () => {
      await client.config('RESETSTAT')
      await relay.beat()
      await term.audit()
      return Number(/cmdstat_evalsha:calls=(\d+)/.exec(await client.info('commandstats'))?.[1] ?? 0)
    }
    await settle()
    const fresh = await scriptCalls()
    const jobs = await Promise.all(QUEUES.map(queue => world.producer.enqueue(FREE, 0, { queue })))
    await settle()
    expect(QUEUES.filter(term.isInUse)).toEqual(QUEUES)
    expect(await scriptCalls()).toBeGreaterThan(fresh + QUEUES.length)
    for (const job of jobs) await world.producer.cancel(job)
    await settle()
    expect(QUEUES.filter(term.isInUse)).toEqual([])
    expect(await scriptCalls()).toBe(fresh)
    // Also what is emptied meanwhile is found when it is needed.
    await client.flushall()
    await settle()
    const [queue = ''] = QUEUES
    await world.producer.enqueue(FREE, 0, { queue })
    await settle()
    expect(term.seen.get(queue)).toMatchObject({ queued: 1 })
    expect(QUEUES.filter(term.isInUse)).toEqual([queue])
  })
})
