/** The relay and Redis forget what Postgres does not have any more, and queues that are not in use; whatever comes in between. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Pool } from '../../src/postgres/connect.ts'
import { noteEnded, noteGeneration } from '../../src/postgres/relay-reads.ts'
import { newSecret } from '../../src/postgres/secret.ts'
import { rootKey } from '../../src/redis/names.ts'
import { queueIndex } from '../../src/redis/queue-index.ts'
import { auditDispatch } from '../../src/relay/audit-dispatch.ts'
import { lead } from '../../src/upkeep/lead.ts'
import { asQueryable } from '../support/at-rest.ts'
import { useDatabase } from '../support/database.ts'
import { handRelay } from '../support/hand-relay.ts'
import { FREE, type Ground, modelGround, TIGHT } from '../support/model-world.ts'
import { useRedis } from '../support/redis.ts'
import { gate } from '../support/signals.ts'
import { weakened } from '../support/weaken.ts'

const database = useDatabase()
const redis = useRedis()
let ground: Ground
beforeAll(async () => {
  ground = await modelGround(database, redis)
})
afterAll(() => ground?.close())

let holders = 0
/** A deployment with workers for `default`, and relays that forget a queue as soon as it is not in use. */
const begin = async () => {
  const world = await ground.begin()
  const [row] = await database.rows<{ deployment: string }>('select deployment from longshore.settings')
  const deployment = String(row?.deployment)
  const follow = (pool: Pool = world.pool, unusedMs = 0) =>
    handRelay({
      pool,
      store: redis.store,
      deployment,
      queue: 'default',
      holder: `forgetting ${holders++}`,
      spread: { width: 0, strategy: 'least-queue' },
      unusedMs,
    })
  const keysOf = async (queue: string) =>
    (await redis.client.keys('*')).filter(key => key.startsWith(rootKey(deployment, queue))).sort()
  const relayed = async (queue: string) =>
    (await database.rows('select from longshore.relayed where queue = $1', [queue])).length
  const settle = async (relay: Awaited<ReturnType<typeof follow>>) => {
    for (let turns = 0; turns < 5; turns++) await relay.catchUp()
    await Promise.resolve()
  }
  const laneOf = async (key: string) => {
    const [lane] = await database.rows<{ id: number }>(
      'select id from longshore.lanes where concurrency_key = $1 order by id desc limit 1',
      [key],
    )
    return lane?.id as number
  }
  /** As the upkeep does it. */
  const dropLanes = async (lanes: number[]) => {
    await database.rows(
      `with gone as (delete from longshore.lanes where id = any ($1) returning id)
       insert into longshore.outbox (lanes) select array_agg(id) from gone`,
      [lanes],
    )
  }
  const audited = () => auditDispatch(asQueryable(database), { redis: redis.server.url, looks: 2 })
  return { world, deployment, follow, keysOf, relayed, settle, laneOf, dropLanes, audited }
}

/** A pool that keeps the next answer to this question, until it is told to give it. */
const holding = (pool: Pool) => {
  const [asked, answered] = [gate(), gate()]
  let about: string | undefined
  const keep = async <T>(question: string, answer: T) => {
    if (about === undefined || !question.includes(about)) return answer
    about = undefined
    asked.open()
    await answered.opened
    return answer
  }
  return {
    pool: {
      ...pool,
      query: async (text, values) => keep(`${text} ${values}`, await pool.query(text, values)),
      queryTexts: async (text, values) => keep(`${text} ${values}`, await pool.queryTexts(text, values)),
    } satisfies Pool as Pool,
    hold(text: string) {
      about = text
    },
    asked: asked.opened,
    answer: () => answered.open(),
  }
}

/** Jobs of these keys have come and gone. */
const use = async (
  world: Awaited<ReturnType<typeof begin>>['world'],
  keys: string[],
  settle: () => Promise<void>,
) => {
  const jobs = []
  for (const concurrencyKey of keys) jobs.push(await world.producer.enqueue(TIGHT, 0, { concurrencyKey }))
  await settle()
  for (const job of jobs) await world.producer.cancel(job)
  await settle()
}

describe('a queue that no worker serves and that has no ready jobs', () => {
  it('[X12] leaves nothing in Redis, in the relay or in Postgres’ list of generations, and comes back with a job', async () => {
    const { world, follow, keysOf, relayed, settle, audited } = await begin()
    const relay = await follow()
    const job = await world.producer.enqueue(FREE, 0, { queue: 'once' })
    await settle(relay)
    expect((await keysOf('once')).length).toBeGreaterThan(0)
    expect(relay.term.queues.has('once')).toBe(true)
    await world.producer.cancel(job)
    await settle(relay)
    await relay.term.dropped()
    expect(await keysOf('once')).toEqual([])
    expect(await relayed('once')).toBe(0)
    expect([...relay.term.queues.keys()]).toEqual(['default'])
    expect(relay.term.seen.has('once')).toBe(false)
    expect(await audited()).toEqual([])
    await world.producer.enqueue(FREE, 0, { queue: 'once' })
    await settle(relay)
    expect(relay.term.seen.get('once')).toMatchObject({ queued: 1 })
    expect(await audited()).toEqual([])
  })

  it('[X12] comes back with a worker, also with one that begins while it is being forgotten', async () => {
    const { world, follow, settle, audited } = await begin()
    const relay = await follow()
    const job = await world.producer.enqueue(FREE, 0, { queue: 'once' })
    await settle(relay)
    await world.producer.cancel(job)
    await relay.turn()
    await relay.beat()
    await relay.turn(async () => {
      await database.rows(
        `with w as (insert into longshore.workers (name, queues, tasks, tags, constraint_tags, expires_at)
           values ('late', '{once}', '{free}', '{default}', '{c:}', 'infinity') returning id)
         insert into longshore.outbox (workers) select array[id] from w`,
      )
    })
    expect(relay.term.queues.has('once')).toBe(false)
    await settle(relay)
    expect(relay.term.queues.get('once')?.isLive).toBe(true)
    expect(await audited()).toEqual([])
  })

  it('[X12] comes back with a job that is enqueued while it is being forgotten', async () => {
    const { world, follow, settle, audited } = await begin()
    const relay = await follow()
    const job = await world.producer.enqueue(FREE, 0, { queue: 'once' })
    await settle(relay)
    await world.producer.cancel(job)
    await relay.turn()
    await relay.beat()
    await relay.turn(async () => void (await world.producer.enqueue(FREE, 1, { queue: 'once' })))
    expect(relay.term.queues.has('once')).toBe(false)
    await settle(relay)
    expect(relay.term.seen.get('once')).toMatchObject({ queued: 1 })
    expect(await audited()).toEqual([])
  })

  it.each([
    ['an audit', 'lanes_with_jobs($1, $2, $3) once'],
    ['a look for queues', 'is_served'],
  ])('[X12] stays forgotten when %s that had begun before goes on', async (_, question) => {
    const { world, follow, keysOf, settle } = await begin()
    const { pool, hold, asked, answer } = holding(world.pool)
    const relay = await follow(pool)
    const job = await world.producer.enqueue(FREE, 0, { queue: 'once' })
    await settle(relay)
    hold(question)
    const goesOn = question === 'is_served' ? relay.term.readQueues() : relay.term.audit()
    await asked
    await world.producer.cancel(job)
    for (let turns = 0; turns < 3; turns++) {
      await relay.term.turn(true)
      await relay.term.beat()
    }
    await relay.term.dropped()
    expect(await keysOf('once')).toEqual([])
    answer()
    await goesOn
    await relay.term.opened()
    expect(await keysOf('once')).toEqual([])
    expect(relay.term.queues.has('once')).toBe(false)
  })

  it('[X12] stays while its last workers are away for less than a while', async () => {
    const { world, follow, settle } = await begin()
    const relay = await follow(world.pool, 60_000)
    const job = await world.producer.enqueue(FREE, 0, { queue: 'once' })
    await settle(relay)
    await world.producer.cancel(job)
    await settle(relay)
    expect(relay.term.queues.has('once')).toBe(true)
    expect(relay.term.isInUse('once')).toBe(false)
  })

  it('[X12] is forgotten by a relay that follows one that died in the middle of it', async () => {
    const { world, deployment, follow, keysOf, relayed, settle } = await begin()
    const relay = await follow(world.pool, 60_000)
    const job = await world.producer.enqueue(FREE, 0, { queue: 'once' })
    await settle(relay)
    await world.producer.cancel(job)
    await settle(relay)
    const { epoch, queues } = relay.term
    const { generation = '', seq = 0 } = queues.get('once') ?? {}
    const index = queueIndex(redis.store, deployment, 'once')
    expect(await index.endGeneration({ epoch, generation, seq: seq + 1 })).toBe('OK')
    expect((await keysOf('once')).length).toBeGreaterThan(0)
    const next = await follow()
    await settle(next)
    await next.term.dropped()
    expect(await keysOf('once')).toEqual([])
    expect(await relayed('once')).toBe(0)
  })

  it('[X12] [X14] is no worse off where Redis says that it has no jobs, and it has: a worker finds them', async () => {
    const { world, follow, keysOf, settle, audited } = await begin()
    const relay = await follow()
    await world.producer.enqueue(FREE, 0, { queue: 'once' })
    await settle(relay)
    const [jobs = ''] = (await keysOf('once')).filter(key => key.endsWith(':jobs'))
    const [id = ''] = (await redis.client.hkeys(jobs)).filter(field => field !== '')
    await redis.client.hdel(jobs, id)
    await redis.client.del(...(await keysOf('once')).filter(key => /:lane:\d+$/.test(key)))
    await relay.beat()
    await relay.turn()
    expect(relay.term.queues.has('once')).toBe(false)
    await database.rows(
      `with w as (insert into longshore.workers (name, queues, tasks, tags, constraint_tags, expires_at)
         values ('late', '{once}', '{free}', '{default}', '{c:}', 'infinity') returning id)
       insert into longshore.outbox (workers) select array[id] from w`,
    )
    await settle(relay)
    expect(relay.term.seen.get('once')).toMatchObject({ queued: 1 })
    expect(await audited()).toEqual([])
  })

  it('[X12] keeps the row of a generation that has begun since: without its guard the next relay would not know of it', async () => {
    const holder = { name: 'ends', secret: newSecret() }
    await database.rows("update longshore.leader set expires_at = '-infinity'")
    await lead(asQueryable(database), 'longshore', holder, 60_000, 'relay with Redis')
    const db = asQueryable(database)
    const ended = async () => {
      await noteGeneration(db, 'longshore', holder, 'back', 'g2')
      await noteEnded(db, 'longshore', holder, 'back', 'g1')
      return (await database.rows("select from longshore.relayed where queue = 'back'")).length
    }
    expect(await ended()).toBe(1)
    expect(await weakened(database, [{ name: 'note_ended', guard: 'same-generation' }], ended)).toBe(0)
  })
})

describe('lanes that Postgres does not have any more', () => {
  const KEYS = ['a', 'b', 'c']

  it('[X12] leave nothing in Redis or in the relay', async () => {
    const { world, follow, keysOf, settle, laneOf, dropLanes, audited } = await begin()
    const relay = await follow()
    const settled = () => settle(relay)
    await use(world, ['stays'], settled)
    const before = await keysOf('default')
    const known = relay.term.known.lanes
    await use(world, KEYS, settled)
    expect((await keysOf('default')).length).toBeGreaterThan(before.length)
    await dropLanes(await Promise.all(KEYS.map(laneOf)))
    await settled()
    expect(await keysOf('default')).toEqual(before)
    expect(relay.term.known.lanes).toBe(known)
    expect(await audited()).toEqual([])
  })

  it('[X12] [X7] are forgotten by a relay that follows, and in the generation that it has just built', async () => {
    const { world, follow, keysOf, settle, laneOf, dropLanes, audited } = await begin()
    const relay = await follow()
    await use(world, KEYS, () => settle(relay))
    const lanes = await Promise.all(KEYS.map(laneOf))
    const [generation] = [relay.generation]
    await dropLanes(lanes.slice(0, 2))
    const next = await follow()
    await settle(next)
    expect(next.generation).toBe(generation)
    const ofLane = (lane: number) => new RegExp(`:lane-facts:${lane}$`)
    const has = async (lane: number) => (await keysOf('default')).some(key => ofLane(lane).test(key))
    expect(await Promise.all(lanes.map(has))).toEqual([false, false, true])
    // Emptied, begun anew, and told of it before the lanes are read in.
    await redis.client.flushall()
    await next.beat()
    await next.turn(() => dropLanes(lanes.slice(2)))
    await settle(next)
    expect(await Promise.all(lanes.map(has))).toEqual([false, false, false])
    expect(await audited()).toEqual([])
  })

  it('[X12] do not come back with what Postgres said of them just before', async () => {
    const { world, follow, keysOf, settle, laneOf, dropLanes } = await begin()
    const relay = await follow()
    await use(world, ['late'], () => settle(relay))
    const lane = await laneOf('late')
    const { pool, hold, asked, answer } = holding(world.pool)
    const next = await follow(pool)
    const [low = ''] = (await keysOf('default')).filter(key => /:lanes$/.test(key))
    await redis.client.sadd(low.replace(/lanes$/, 'low'), String(lane))
    hold('describe_lanes')
    const beat = next.term.beat()
    await asked
    await dropLanes([lane])
    await next.term.turn(true)
    answer()
    await beat
    // A worker's word comes late.
    next.term.wantMore(next.term.queues.get('default')?.root ?? '', [lane])
    await settle(next)
    expect((await keysOf('default')).filter(key => key.endsWith(`:lane-facts:${lane}`))).toEqual([])
    expect(await redis.client.smembers(low)).not.toContain(String(lane))
  })

  it('[X12] [X14] are forgotten where Redis wants more of them, and cost no generation', async () => {
    const { follow, keysOf, settle } = await begin()
    const relay = await follow()
    await settle(relay)
    const { generation } = relay
    const [lanes = ''] = (await keysOf('default')).filter(key => key.endsWith(':lanes'))
    await redis.client.sadd(lanes.replace(/lanes$/, 'low'), '987654')
    await settle(relay)
    expect(await redis.client.smembers(lanes.replace(/lanes$/, 'low'))).toEqual([])
    expect(relay.generation).toBe(generation)
  })
})

describe('limits of keys that Postgres does not have any more', () => {
  it('[X12] go with their lanes in Redis; a job that comes stands under the limit of today', async () => {
    const { world, follow, keysOf, settle, audited } = await begin()
    const relay = await follow()
    const settled = () => settle(relay)
    await use(world, ['stays'], settled)
    const before = (await keysOf('default')).length
    const limits = relay.term.known.limits
    await use(world, ['a', 'b'], settled)
    const drop = () =>
      database.rows(
        `with gone as (delete from longshore.limits where key in ('a', 'b') returning id),
           slots as (delete from longshore.slot_groups where limit_id in (select id from gone))
         insert into longshore.outbox (limits) select array_agg(id) from gone`,
      )
    await drop()
    await settled()
    expect(await keysOf('default')).toHaveLength(before)
    expect(relay.term.known.limits).toBe(limits)
    // One of them has a ready job when its limit goes.
    const { id } = await world.producer.enqueue(TIGHT, 0, { concurrencyKey: 'a' })
    await settled()
    await drop()
    await settled()
    expect(await audited()).toEqual([])
    expect((await world.workers[0]?.begin([], 1))?.named?.ids).toEqual([id])
  })
})
