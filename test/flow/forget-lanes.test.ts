/** Lanes, tasks and queue names that are not used are forgotten, beside whatever uses them just then; and a deployment has so many queues at most. */
import { beforeEach, describe, expect, it } from 'vitest'
import { defineTask, readMaxQueues, setMaxQueues } from '../../src/index.ts'
import { type Claimed, workByHand } from '../support/by-hand.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { asAsked, beginAnew, forgetOn, passDays } from '../support/forgetting.ts'
import { underWay, useGuards } from '../support/guards.ts'
import { standsAtBarrier } from '../support/locks.ts'
import { makeDay } from '../support/make-day.ts'
import { eventually } from '../support/signals.ts'
import { pauseAt, weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const { begin, barrier } = useGuards(database, deployment)
const task = defineTask<number>({ name: 't' })
const keyed = defineTask<number>({ name: 'keyed', concurrencyPerKey: 2 })
const BARRIER = 72
const LONG = 400

beforeEach(() => beginAnew(database))

const round = (page = 1000) => forgetOn(asAsked(database), { page })
const lanes = async (where = 'true') =>
  (await database.rows<{ id: number }>(`select id from longshore.lanes where ${where} order by id`)).map(
    ({ id }) => id,
  )
const laneOf = async (job: { id: string }) =>
  (
    await database.rows<{ lane: number }>(
      'select lane from longshore.jobs where id = $1 union all select lane from longshore.finished_jobs where id = $1',
      [job.id],
    )
  )[0]?.lane
const makeLane = async (key = '') =>
  (
    await database.rows<{ id: number }>(
      "select longshore.make_lane('default', 't', 'default', 'c:', $1) as id",
      [key],
    )
  )[0]?.id as number
/** A lane of task t that a whole round has marked, long ago. */
const unusedLane = async (key = '') => {
  const lane = await makeLane(key)
  await round()
  await passDays(database, LONG)
  return lane
}
const plain = (client: Pick<TestClient, 'query'>) =>
  client.query(
    "select lane from longshore.enqueue_plain('default', 't', 'default', 0, 3, array[gen_random_uuid()], '{}', false)",
  )
const laneIn = (answer: { rows: { lane?: number }[] }) => answer.rows[0]?.lane

describe('a lane that is not used', () => {
  it('[X12] is deleted when no finished job of it is kept any more, and made again for the next job', async () => {
    const producer = deployment.producer()
    const worker = await deployment.worker({ handlers: [task.handle(n => n), keyed.handle(n => n)] })
    const jobs = [await producer.enqueue(task, 1), await producer.enqueue(keyed, 2, { concurrencyKey: 'a' })]
    await deployment.drained()
    // The worker, or a relay, leads.
    const roundOfLeader = async () => {
      const before = await database.rows<{ at: string }>(
        'select began_at::text as at from longshore.forgetting',
      )
      await database.rows("update longshore.forgetting set next_at = now() where step = 'resting'")
      await eventually('the leader has gone round', async () => {
        const [now] = await database.rows<{ at: string; step: string }>(
          'select began_at::text as at, step from longshore.forgetting',
        )
        return now?.at !== before[0]?.at && now?.step === 'resting'
      })
    }
    await roundOfLeader()
    expect(await lanes('unused_since is null')).toEqual([])
    await passDays(database, 5)
    await roundOfLeader()
    // Today's jobs are kept for seven days.
    expect(await lanes()).toEqual(expect.arrayContaining(await Promise.all(jobs.map(laneOf))))
    // As if their days had passed.
    await database.rows(
      'set session_replication_role = replica; delete from longshore.finished_jobs; delete from journal.changes; set session_replication_role = origin',
    )
    await passDays(database, 10)
    await roundOfLeader()
    await roundOfLeader() // those below which a lane with a key stood
    expect(await lanes()).toEqual([])
    await producer.enqueue(task, 3)
    await producer.enqueue(keyed, 4, { concurrencyKey: 'a' })
    await deployment.drained()
    expect((await lanes()).length).toBe(3)
    await worker.stop()
  })

  it('[X12] is in use again when a job comes: the leader takes the mark away', async () => {
    const lane = await unusedLane()
    await deployment.worker({ handlers: [task.handle(() => undefined)] })
    await eventually('registering has used it', async () =>
      (await lanes('unused_since is null')).includes(lane),
    )
    await deployment.producer().enqueue(task, 1)
    await deployment.drained()
    await eventually(
      'nothing is noted any more',
      async () => (await database.rows('select from longshore.lane_uses')).length === 0,
    )
    expect(await lanes('unused_since is null')).toEqual([lane])
  })

  it.each([
    [7, 'with a retention of days, its last job is kept for these and a day'],
    [30, 'with a retention of weeks, until the end of the week'],
    [90, 'with a retention of months, until the end of the month'],
  ])('[X12] goes on the very day: retention %i, %s', async days => {
    await database.rows('update longshore.settings set retention_days = $1', [days])
    await makeLane()
    await round()
    const [row] = await database.rows<{ days: number }>(
      `select min(n)::int as days from generate_series(1, 500) n
       where longshore.kept_until((now() at time zone 'utc')::date - n + 1, $1) < (now() at time zone 'utc')::date`,
      [days],
    )
    await passDays(database, (row?.days ?? 0) - 1)
    expect((await round()).deleted).toBe(0)
    await passDays(database, 1)
    expect((await round()).deleted).toBe(1)
  })

  it('[X12] stays while a partition of the history that may name it is not dropped yet', async () => {
    await makeLane()
    await round()
    await passDays(database, 12)
    await makeDay(database, new Date(Date.now() - 10 * 86_400_000).toISOString().slice(0, 10))
    expect((await round()).deleted).toBe(0)
    const forgetHistory = () =>
      database.rows<{ is_done: boolean }>('select is_done from longshore.forget_history()')
    for (let [step] = await forgetHistory(); !step?.is_done; ) [step] = await forgetHistory()
    expect((await round()).deleted).toBe(1)
  })

  it('[X12] is found a page after another, whatever its jobs are', async () => {
    const producer = deployment.producer()
    const jobs = []
    for (let n = 0; n < 12; n++)
      jobs.push(await producer.enqueue(keyed, n, { concurrencyKey: `key ${n}`, delay: '1h' }))
    for (let n = 12; n < 24; n++) await makeLane(`key ${n}`)
    const used = await Promise.all(jobs.map(laneOf))
    // Pages of three lanes and six jobs.
    await producer.enqueueMany(
      task,
      Array.from({ length: 50 }, (_, n) => n),
      { delay: '1h' },
    )
    expect(await round(3)).toMatchObject({ step: 'resting', deleted: 0 })
    await passDays(database, LONG)
    expect((await round(3)).deleted).toBe(12)
    expect(await lanes()).toEqual(expect.arrayContaining(used))
  })

  it('[X12] goes with what claims remember of it, and the lane that it stood below after it', async () => {
    const lane = await unusedLane('a')
    await database.rows(
      `insert into longshore.lane_heads (parent, lane, score, job_id)
       select parent, id, 1, gen_random_uuid() from longshore.lanes where id = $1`,
      [lane],
    )
    await database.rows(
      "insert into longshore.limit_waiters (lane, worker_id, task, wanted, asked_at) values ($1, 1, 't', 1, now())",
      [lane],
    )
    expect((await round()).deleted).toBe(1)
    expect(await database.rows('select from longshore.lane_heads')).toEqual([])
    expect(await database.rows('select from longshore.limit_waiters')).toEqual([])
    expect((await round()).deleted).toBe(1)
    expect(await lanes()).toEqual([])
  })

  it('[X12] costs nothing while there is none', async () => {
    await round()
    const [before] = await database.rows<{ at: string }>(
      'select xmin::text || ctid::text as at from longshore.forgetting',
    )
    for (let n = 0; n < 3; n++)
      expect((await forgetOn(asAsked(database), { begins: false })).step).toBe('resting')
    const [after] = await database.rows<{ at: string }>(
      'select xmin::text || ctid::text as at from longshore.forgetting',
    )
    expect(after).toEqual(before)
  })
})

/** What gives a job to a lane of task t without a key, in an open transaction. Answers the lane. */
const ways: [string, (client: TestClient) => Promise<number | undefined>][] = [
  ['a plain enqueue', async client => laneIn(await plain(client))],
  [
    'a plain enqueue in a savepoint',
    async client => {
      await client.query('savepoint here')
      const lane = laneIn(await plain(client))
      await client.query('release savepoint here')
      return lane
    },
  ],
  [
    'an enqueue from SQL',
    async client => {
      const { rows } = await client.query(
        "select longshore.enqueue('t', '{}', '{\"delayMs\": 3600000}') as id",
      )
      return laneIn(await client.query('select lane from longshore.jobs where id = $1', [rows[0].id]))
    },
  ],
  [
    'an enqueue of many in a transaction of the caller',
    async client => {
      const jobs = await deployment.producer().enqueueMany(task, [1, 2, 3], { tx: client, priority: 3 })
      return laneIn(await client.query('select lane from longshore.jobs where id = $1', [jobs[0]?.id]))
    },
  ],
  [
    'the submit of a group',
    async client => {
      const group = deployment.producer().group()
      const first = group.add(task, 1)
      group.add(task, 2, { after: first })
      await group.submit({ tx: client })
      return laneIn(await client.query('select lane from longshore.jobs where id = $1', [first.id]))
    },
  ],
  [
    'a change',
    async client => {
      const job = await deployment.producer().enqueue(task, 1, { constraints: { gpu: 'a100' } })
      await client.query('select longshore.change($1, \'{"constraintTag": "c:"}\')', [job.id])
      return laneIn(await client.query('select lane from longshore.jobs where id = $1', [job.id]))
    },
  ],
  [
    'a plain enqueue above READ COMMITTED',
    async client => {
      await client.query('set transaction isolation level repeatable read')
      return laneIn(await plain(client))
    },
  ],
]

describe.each(ways)('%s', (_, use) => {
  it('[X12] first: the lane that was marked long ago stays, and is in use when the transaction has ended', async () => {
    const lane = await unusedLane()
    const user = await begin()
    expect(await use(user)).toBe(lane)
    expect((await round()).deleted).toBe(0)
    await user.query('commit')
    await round()
    await passDays(database, LONG)
    await round()
    expect(await lanes()).toContain(lane)
  })

  it('[X12] while the lane is being deleted: waits for nothing and gets another lane', async () => {
    const lane = await unusedLane()
    const user = await begin()
    await weakened(
      database,
      [{ name: 'delete_lanes', point: 'held', insertion: pauseAt(BARRIER) }],
      async () => {
        const held = await barrier(BARRIER)
        const leader = await database.connect()
        const ended = underWay(forgetOn(leader))
        await standsAtBarrier(database, 'forget_lanes')
        expect(await use(user)).not.toBe(lane)
        await held.open()
        expect((await ended).deleted).toBe(1)
      },
    )
    await user.query('commit')
    expect(await lanes()).not.toContain(lane)
  })

  it('[X12] rolled back: the lane goes all the same', async () => {
    const lane = await unusedLane()
    const user = await begin()
    expect(await use(user)).toBe(lane)
    await user.query('rollback')
    await round()
    expect(await lanes()).not.toContain(lane)
  })
})

describe('a transaction that uses a lane', () => {
  it('[X12] gets another one where the lane is deleted between its look and its lock', async () => {
    const lane = await unusedLane()
    const user = await begin()
    await weakened(
      database,
      [{ name: 'use_lane', point: 'found', insertion: pauseAt(BARRIER) }],
      async () => {
        const held = await barrier(BARRIER)
        const made = underWay(plain(user))
        await standsAtBarrier(database, 'enqueue_plain')
        expect((await round()).deleted).toBe(1)
        await held.open()
        expect(laneIn(await made)).not.toBe(lane)
      },
    )
    await user.query('commit')
  })

  it('[X12] keeps it from the moment on that it holds it', async () => {
    const lane = await unusedLane()
    const user = await begin()
    await weakened(database, [{ name: 'use_lane', point: 'held', insertion: pauseAt(BARRIER) }], async () => {
      const held = await barrier(BARRIER)
      const made = underWay(plain(user))
      await standsAtBarrier(database, 'enqueue_plain')
      expect((await round()).deleted).toBe(0)
      await held.open()
      expect(laneIn(await made)).toBe(lane)
    })
    await user.query('commit')
    expect((await round()).deleted).toBe(0)
  })

  it('[X12] with a snapshot from before the deletion fails as one that must be tried again, and then gets another lane', async () => {
    const lane = await unusedLane()
    const user = await begin()
    await user.query('set transaction isolation level repeatable read')
    await user.query('select from longshore.lanes')
    expect((await round()).deleted).toBe(1)
    await expect(plain(user)).rejects.toMatchObject({ code: '40001' })
    await user.query('rollback')
    expect(laneIn(await plain(user))).not.toBe(lane)
  })

  it('[X12] with an old snapshot uses a lane that was marked and unmarked since', async () => {
    const lane = await makeLane()
    const user = await begin()
    await user.query('set transaction isolation level repeatable read')
    await user.query('select from longshore.lanes')
    await round()
    await plain(await database.connect())
    await round()
    expect(await lanes('unused_since is null')).toEqual([lane])
    expect(laneIn(await plain(user))).toBe(lane)
    await user.query('commit')
  })

  it('[X12] and is one of many leaves one note while nothing leads', async () => {
    const lane = await unusedLane()
    const client = await database.connect()
    for (let n = 0; n < 20; n++) expect(laneIn(await plain(client))).toBe(lane)
    expect((await database.rows('select from longshore.lane_uses')).length).toBe(1)
    expect((await round()).deleted).toBe(0)
  })

  it('[X12] and was rolled back to a savepoint does not keep it', async () => {
    const lane = await unusedLane()
    const user = await begin()
    await user.query('savepoint here')
    expect(laneIn(await plain(user))).toBe(lane)
    await user.query('rollback to savepoint here')
    expect((await round()).deleted).toBe(1)
    expect(laneIn(await plain(user))).not.toBe(lane)
    await user.query('commit')
  })
})

type Hand = Awaited<ReturnType<typeof workByHand>>
const settledAs = (outcome: string) => async (hand: Hand, job: Claimed) => {
  const other = { id: job.id, token: job.lease_token, outcome, delayMs: 0 }
  expect(await hand.settleOthers([other])).toEqual([])
}

describe('a job that runs', () => {
  it.each([
    ['is given back', settledAs('released')],
    ['is tried again', settledAs('retry')],
    [
      'is rescued',
      async (hand: Hand) => {
        await database.rows(
          "update longshore.workers set expires_at = now() - interval '1 hour' where id = $1",
          [hand.id],
        )
        await database.rows('select longshore.rescue(3600000, 100)')
      },
    ],
  ])('[X12] keeps its lane while a round goes by, and when it %s', async (_, goesBack) => {
    const lane = await makeLane()
    const hand = await workByHand(database, ['t'])
    await plain(await database.connect())
    const [job] = await hand.claim(1)
    if (!job) throw new Error('nothing was claimed')
    await round()
    await passDays(database, LONG)
    await round()
    expect(await lanes('unused_since is null')).toEqual([lane])
    await goesBack(hand, job)
    expect(await database.rows('select state, lane from longshore.jobs')).toEqual([{ state: 'ready', lane }])
    await round()
    expect(await lanes()).toEqual([lane])
  })
})

describe('a leader that dies', () => {
  it('[X12] in the middle of a round leaves a round with which the next one goes on', async () => {
    const lane = await unusedLane()
    await otherLanes(20)
    await weakened(
      database,
      [{ name: 'delete_lanes', point: 'held', insertion: pauseAt(BARRIER) }],
      async () => {
        const held = await barrier(BARRIER)
        const leader = await database.connect()
        const ended = underWay(forgetOn(leader, { page: 2 }))
        await standsAtBarrier(database, 'forget_lanes')
        await database.rows('select pg_terminate_backend($1)', [leader.backendPid])
        await expect(ended).rejects.toThrow()
        await held.open()
      },
    )
    expect(await lanes()).toContain(lane)
    const client = await database.connect()
    // A few pieces, and another leader for the others.
    await client.query("update longshore.forgetting set next_at = now() where step = 'resting'")
    for (let n = 0; n < 5; n++) await client.query('select longshore.forget_lanes(p_page => 2)')
    expect(await lanes()).not.toContain(lane)
    expect((await forgetOn(asAsked(database), { begins: false, page: 2 })).step).toBe('resting')
    expect(await lanes('unused_since is null')).toEqual([])
  })
})
const otherLanes = async (count: number) => {
  for (let n = 0; n < count; n++)
    await database.rows("select longshore.make_lane('default', $1, 'default', 'c:')", [`other ${n}`])
}

describe('tasks and queues', () => {
  it('[X12] that no process registers and no lane names are forgotten, with their limits; what a person has set stays', async () => {
    const register = (name: string) =>
      database.rows('select longshore.register_tasks($1)', [
        JSON.stringify([{ name, queue: `of ${name}`, tag: 'default', maxAttempts: 3, concurrency: 2 }]),
      ])
    await register('old')
    await register('used')
    await database.rows("update longshore.tasks set registered_at = now() - interval '40 days'")
    await database.rows("insert into longshore.queues (name, fanout_width) values ('of old', 3)")
    await database.rows(
      "insert into longshore.relayed (queue, generation, seq) values ('of old', 'g', 1), ('of used', 'g', 1)",
    )
    await round()
    await passDays(database, LONG)
    // Registered again on the same day each day.
    await register('used')
    await round()
    expect((await database.rows('select name from longshore.tasks')).map(({ name }) => name)).toEqual([
      'used',
    ])
    expect((await database.rows('select task from longshore.limits')).map(({ task }) => task)).toEqual([
      'used',
    ])
    // Redis may still hold something of it: a relay deletes the row when it does not.
    expect(
      (await database.rows('select queue from longshore.relayed order by 1')).map(({ queue }) => queue),
    ).toEqual(['of old', 'of used'])
    expect((await database.rows('select name from longshore.queues')).map(({ name }) => name)).toEqual([
      'of old',
    ])
    // Known again, as if it were new.
    await register('old')
    expect((await database.rows("select capacity from longshore.limits where task = 'old'"))[0]).toEqual({
      capacity: 2,
    })
  })

  it('[X12] are written once a day at most, however many processes start', async () => {
    const tasks = JSON.stringify([{ name: 't', queue: 'default', tag: 'default', maxAttempts: 3 }])
    const at = async () =>
      (await database.rows<{ at: string }>('select xmin::text as at from longshore.tasks'))[0]?.at
    for (const verb of ['register_tasks', 'register_tasks_if_new']) {
      await database.rows(`select longshore.${verb}($1)`, [tasks])
      const first = await at()
      await database.rows(`select longshore.${verb}($1)`, [tasks])
      expect(await at()).toBe(first)
      await database.rows("update longshore.tasks set registered_at = now() - interval '25 hours'")
      const old = await at()
      await database.rows(`select longshore.${verb}($1)`, [tasks])
      expect(await at()).not.toBe(old)
    }
  })

  it('[X12] there are so many queues at most, by every way that makes one', async () => {
    const where = { postgres: database.url }
    expect(await readMaxQueues(where)).toBe(1000)
    expect(await setMaxQueues({ ...where, maxQueues: 2 })).toBe(2)
    const producer = deployment.producer()
    for (const queue of ['a', 'b']) await producer.enqueue(task, 1, { queue, delay: '1h' })
    const refused = { code: 'TOO_MANY_QUEUES', message: expect.stringContaining('longshore queues --max') }
    await expect(producer.enqueue(task, 1, { queue: 'c' })).rejects.toMatchObject(refused)
    await expect(producer.enqueueMany(task, [1, 2], { queue: 'c' })).rejects.toMatchObject(refused)
    await expect(producer.enqueue(keyed, 1, { queue: 'c', concurrencyKey: 'k' })).rejects.toMatchObject(
      refused,
    )
    const group = producer.group()
    group.add(task, 1, { queue: 'c' })
    await expect(group.submit()).rejects.toMatchObject(refused)
    const user = await begin()
    await expect(producer.enqueue(task, 1, { queue: 'c', tx: user })).rejects.toMatchObject({
      code: expect.stringMatching(/LS011|TOO_MANY_QUEUES/),
    })
    await user.query('rollback')
    const worker = { handlers: [task.handle(() => undefined)] }
    await expect(deployment.worker(worker)).rejects.toMatchObject(refused)
    // Other lanes of queues that there are.
    await producer.enqueue(task, 1, { queue: 'b', tag: 'other', delay: '1h' })
    await setMaxQueues({ ...where, maxQueues: 3 })
    await producer.enqueue(task, 1, { queue: 'c', delay: '1h' })
    await expect(setMaxQueues({ ...where, maxQueues: 0 })).rejects.toMatchObject({ code: 'CONFIG_INVALID' })
  })
})
