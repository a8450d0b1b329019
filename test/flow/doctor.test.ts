/** The doctor: every kind of damage is planted, found, and mended or explained. */
import { Redis } from 'ioredis'
import { afterAll, beforeEach, describe, expect, inject, it } from 'vitest'
import {
  createRelay,
  type DoctorOptions,
  defineTask,
  doctor,
  type GroupBuilder,
  type Producer,
} from '../../src/index.ts'
import { auditPostgres } from '../../src/postgres/audit.ts'
import { openPool } from '../../src/postgres/connect.ts'
import { type ExamineOptions, examine } from '../../src/postgres/examine.ts'
import { rootKey } from '../../src/redis/names.ts'
import { auditDispatch } from '../../src/relay/audit-dispatch.ts'
import { type Claimed, settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { waitsForLock } from '../support/locks.ts'
import { eventually } from '../support/signals.ts'
import { spawnCli } from '../support/spawn-cli.ts'
import { type Weakness, weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database, { audit: false, because: 'damage is planted' })
const plain = defineTask<string>({ name: 'plain' })
const limited = defineTask<string>({ name: 'limited', concurrency: 3, concurrencyPerKey: 1 })
const linked = defineTask<string>({ name: 'linked', retry: { maxAttempts: 1 } })
const tasks = [plain, limited, linked]
const db = {
  query: async (text: string, values?: unknown[]) => ({ rows: await database.rows(text, values) }),
}
const see = (options: Partial<DoctorOptions> = {}) => doctor({ postgres: database.url, looks: 1, ...options })

const job = (payload: string) => `payload = '"${payload}"'`
const idOf = (payload: string) => `(select id from longshore.jobs where ${job(payload)})`
const endedOf = (payload: string) => `(select id from longshore.finished_jobs where ${job(payload)})`
const limitOf = (key: string) => `(select id from longshore.limits where task = 'limited' and key = '${key}')`

/**
 * In a group `bad` has failed and `doomed` with it, `second` waits for `first` and `third` for both. A workflow has three jobs.
 * Of `limited` two run, under the keys a and b, and each key has one more that is ready. One job is due in an hour.
 */
let producer: Producer
let group: GroupBuilder
let hand: Awaited<ReturnType<typeof workByHand>>
let held: Claimed[]
beforeEach(async () => {
  producer = deployment.producer({ tasks })
  group = producer.group()
  const bad = group.add(linked, 'bad', { priority: 1 })
  group.add(linked, 'doomed', { after: bad })
  const first = group.add(linked, 'first')
  const second = group.add(linked, 'second', { after: first })
  group.add(linked, 'third', { after: [first, second] })
  await group.submit()
  for (const n of [1, 2, 3]) await producer.enqueue(linked, `turn ${n}`, { workflow: 'in order' })
  for (const key of ['a', 'b'])
    await producer.enqueueMany(limited, [`${key} 1`, `${key} 2`], { concurrencyKey: key })
  await producer.enqueue(plain, 'ready')
  await producer.enqueue(plain, 'later', { delay: '1h' })
  const linker = await workByHand(database, ['linked'])
  for (const { id, lease_token: token } of await linker.claim(1))
    await linker.settleOthers([{ id, token, outcome: 'failed', error: null }])
  hand = await workByHand(database, ['limited'])
  held = await hand.claim(4)
  expect(held.map(claimed => claimed.payload)).toEqual(['a 1', 'b 1'])
})

/** What is left runs to its end, and the audit tells nothing (or what was told). Answers the payloads in the order of their runs. */
async function runToTheEnd(told: unknown[] = []): Promise<string[]> {
  await database.rows(`update longshore.jobs set state = 'ready', score = 0 where state = 'scheduled'`)
  await hand.settle(held.map(settling)) // some damage has taken them from it
  const ran: string[] = []
  const run = (given: { payload: string }) => {
    ran.push(given.payload)
  }
  await deployment.worker({ handlers: [plain.handle(run), limited.handle(run), linked.handle(run)] })
  await eventually('every job has ended', async () => {
    const [row] = await database.rows<{ jobs: number }>('select count(*)::int as jobs from longshore.jobs')
    return row?.jobs === 0
  })
  await eventually(
    'every group is closed',
    async () => (await database.rows('select from longshore.groups where finished_at is null')).length === 0,
  )
  expect(await auditPostgres(db, 'longshore', { isDrained: true })).toEqual(told)
  return ran
}

/** Damage that a constraint keeps out; old rows are not checked when it is back. */
async function withoutConstraint(name: string, damage: string): Promise<void> {
  const [row] = await database.rows<{ def: string; of: string }>(
    'select pg_get_constraintdef(oid) as def, conrelid::regclass::text as of from pg_constraint where conname = $1',
    [name],
  )
  await database.rows(
    `alter table ${row?.of} drop constraint ${name}; ${damage};
     alter table ${row?.of} add constraint ${name} ${row?.def} not valid`,
  )
}
const outside = (constraint: string, damage: string) => () => withoutConstraint(constraint, damage)
const plant = (damage: string | (() => Promise<void>)) =>
  typeof damage === 'string' ? database.rows(damage) : damage()

describe('doctor', () => {
  it('[X6] finds nothing where nothing is wrong, and says what it looked at', async () => {
    const report = await see({ repair: true })
    expect(report).toMatchObject({ isHealthy: true, violations: [], repaired: [], repairedCount: 0 })
    expect(report.looked).toMatchObject({ jobs: 12, finished_jobs: 2, groups: 1, workflows: 1 })
    expect(report.tables.map(table => table.name)).toContain('jobs')
    expect(await see({ pageSize: 1, pause: 0 })).toMatchObject({ isHealthy: true, looked: report.looked })
    expect(await runToTheEnd()).toHaveLength(10)
  })

  it.each<[invariant: number, problem: string, remedy: string, damage: string | (() => Promise<void>)]>([
    [
      1,
      'and is still scheduled',
      '1 due jobs were made ready',
      `update longshore.jobs set score = (score >> 42 << 42) + floor(extract(epoch from now()) * 1000)::bigint - 60000
       where ${job('later')}`,
    ],
    [
      5,
      'used 0, held by 1',
      '2 of 3 slots are used',
      `update longshore.slot_groups set used = used - 1 where used > 0 and limit_id = ${limitOf('')}`,
    ],
    [
      5,
      'used 1, held by 0',
      'slots are used',
      `update longshore.slot_groups set used = capacity where limit_id = ${limitOf('')}`,
    ],
    [
      5,
      'it runs without a slot',
      'slots are used',
      `update longshore.jobs set slot = null, key_slot = null where ${job('a 1')}`,
    ],
    [
      5,
      'it does not exist, held by 1',
      'slots are used',
      `update longshore.jobs set slot = 7 where ${job('a 1')}`,
    ],
    [
      5,
      'allows 3, its slot groups hold 2',
      '2 of 3 slots',
      `delete from longshore.slot_groups where limit_id = ${limitOf('')} and number = 2`,
    ],
    [
      5,
      'allows 1, its task says 3',
      '2 of 3 slots',
      `update longshore.limits set capacity = 1 where id = ${limitOf('')}`,
    ],
    [5, 'which does not exist', 'were removed', "delete from longshore.limits where key = 'a'"],
    [
      5,
      'is closed, and 2 of 3',
      '2 of 3 slots',
      `update longshore.limits set is_full = true where id = ${limitOf('')}`,
    ],
    [5, 'no claim would look at it', 'claims know the lane again', 'delete from longshore.lane_heads'],
    [
      5,
      'no claim would look at it',
      'claims know the lane again',
      `update longshore.lane_heads set closed_by = ${limitOf('')}`,
    ],
    [6, 'waits for 7 things', 'waits for 1', `update longshore.jobs set pending = 7 where ${job('second')}`],
    [6, 'waits for 1 things', 'waits for 2', `update longshore.jobs set pending = 1 where ${job('third')}`],
    [
      6,
      'it is ready and waits for 0',
      'it is waiting and waits for 2',
      `update longshore.jobs set state = 'ready', pending = null where ${job('third')}`,
    ],
    [
      6,
      'it is waiting and waits for 1',
      'it is ready and waits for 0',
      `delete from longshore.edges where child = ${idOf('second')}`,
    ],
    [
      6,
      'waits for 3 things, of which 0',
      'it is scheduled and waits for 0',
      `update longshore.jobs set state = 'waiting', pending = 3 where ${job('later')}`,
    ],
    [
      7,
      'it is waiting, although job',
      'it ended as dependency_failed',
      `insert into longshore.edges (parent, child) values (${endedOf('bad')}, ${idOf('second')})`,
    ],
    [
      7,
      'it is ready, although job',
      'it ended as cancelled',
      `insert into longshore.edges (parent, child, policy) values (${endedOf('bad')}, ${idOf('first')}, 'cancel')`,
    ],
    [7, 'does not exist', 'has its row again', 'delete from longshore.groups'],
    [
      7,
      'nobody has closed it',
      'it is closed as succeeded',
      "insert into longshore.groups (id, created_at) values (gen_random_uuid(), now() - interval '1 hour')",
    ],
    [
      8,
      'it was cancelled while it ran, and is ready',
      'it is cancelled',
      outside(
        'only_running_is_being_cancelled',
        `update longshore.jobs set is_cancelled = true where ${job('ready')}`,
      ),
    ],
    [
      9,
      'no turn, and is the first',
      'it is ready and waits for 0',
      `update longshore.jobs set has_turn = false, state = 'waiting', pending = 1 where ${job('turn 1')}`,
    ],
    [
      9,
      'it has the turn, and number 0 stands before it',
      'the turn was taken from',
      `update longshore.jobs set has_turn = false, state = 'waiting', pending = 1 where ${job('turn 1')};
       update longshore.jobs set has_turn = true, state = 'ready', pending = null where ${job('turn 2')}`,
    ],
    [9, 'does not exist', 'its workflow goes on as "recovered', 'delete from longshore.workflows'],
    [
      9,
      'nobody has removed it',
      'it was removed',
      "insert into longshore.workflows (key) values ('left over')",
    ],
    [13, 'which does not exist', '2 run again', 'delete from longshore.workers'],
  ])(
    '[X6] invariant %i: finds “%s”, and mends it: “%s” (case %#)',
    async (invariant, problem, remedy, damage) => {
      await plant(damage)
      const found = await see()
      expect(found).toMatchObject({ isHealthy: false, repaired: [] })
      expect(found.violations).toContainEqual(
        expect.objectContaining({
          invariant,
          problem: expect.stringContaining(problem),
          remedy: 'run longshore doctor --repair',
        }),
      )
      const mended = await see({ repair: true })
      expect(mended.violations).toEqual([])
      expect(mended.isHealthy).toBe(true)
      expect(mended.repaired).toContainEqual(
        expect.objectContaining({ invariant, remedy: expect.stringContaining(remedy) }),
      )
      expect(await auditPostgres(db)).toEqual([])
      expect(await see({ repair: true })).toMatchObject({ isHealthy: true, repaired: [] })
      const ran = await runToTheEnd()
      expect(ran.filter(payload => payload.startsWith('turn'))).toEqual(['turn 1', 'turn 2', 'turn 3'])
      expect(await producer.getGroup(group)).toMatchObject({ state: 'failed' })
    },
  )

  it.each<[invariant: number, problem: string, remedy: string, damage: string | (() => Promise<void>)]>([
    [
      2,
      'it is ready, and has ended as failed',
      'compare with a backup',
      `insert into longshore.finished_jobs (id, score, lease_token, created_at, finished_at, lane, keep_until, state, attempts,
         max_attempts, payload)
       select id, score, 0, created_at, now(), lane, current_date + 7, 'failed', 0, 1, payload
       from longshore.jobs where ${job('ready')}`,
    ],
    [2, 'its lane 0 does not exist', 'backup', `update longshore.jobs set lane = 0 where ${job('ready')}`],
    [
      3,
      'was never drawn',
      'raise the sequence',
      `update longshore.jobs set lease_token = 100000 where ${job('ready')}`,
    ],
    [
      3,
      'is held by 2 workers',
      'backup',
      `update longshore.jobs set worker_id = (select min(id) from longshore.workers) where ${job('a 1')}`,
    ],
    [4, 'token 0', 'backup', `update longshore.jobs set lease_token = 0 where ${job('a 1')}`],
    [
      6,
      'it is running and waits for 0 things, of which 1',
      'it runs already',
      `insert into longshore.edges (parent, child) values (${idOf('b 1')}, ${idOf('a 1')})`,
    ],
    [
      7,
      'of group none, and belongs to group',
      'backup',
      `insert into longshore.edges (parent, child) values (${idOf('ready')}, ${idOf('second')});
       update longshore.jobs set pending = 2 where ${job('second')}`,
    ],
    [
      7,
      'it waits in a circle',
      'cancel one of them',
      `insert into longshore.edges (parent, child) values (${idOf('third')}, ${idOf('second')});
       update longshore.jobs set pending = 2 where ${job('second')}`,
    ],
    [
      7,
      'has ended as succeeded, and it is',
      'an end state is written once',
      "update longshore.groups set end_state = 'succeeded', finished_at = now()",
    ],
    [
      7,
      'it is succeeded, although job',
      'nothing can be undone',
      `update longshore.finished_jobs set state = 'succeeded', worker_id = 1, started_at = now(), attempts = 1
       where ${job('doomed')}`,
    ],
    [
      8,
      'it was cancelled at',
      'nothing can be undone',
      `update longshore.finished_jobs set state = 'cancelled', started_at = now() + interval '1 hour' where ${job('bad')}`,
    ],
    [
      8,
      'was cancelled at',
      'cancel it if it still runs',
      `update longshore.groups set cancelled_at = '-infinity'; update longshore.finished_jobs set started_at = now() where ${job('bad')}`,
    ],
    [
      12,
      'the oldest row of the outbox',
      'nobody reads the outbox',
      `update longshore.settings set dispatch = 'redis';
       insert into longshore.outbox (jobs, created_at) values ('{}', now() - interval '1 minute')`,
    ],
    [
      13,
      'whose lease ran out',
      'nobody rescues',
      "update longshore.workers set expires_at = now() - interval '1 minute'",
    ],
    [
      14,
      '4 attempts of 3',
      'cancel it',
      outside('attempts_in_bounds', `update longshore.jobs set attempts = 4 where ${job('ready')}`),
    ],
  ])(
    '[X6] invariant %i: finds “%s”, and leaves it to a person: “%s” (case %#)',
    async (invariant, problem, remedy, damage) => {
      await plant(damage)
      const { isHealthy, violations, repaired } = await see({ repair: true })
      expect(isHealthy).toBe(false)
      expect(repaired).toEqual([])
      expect(violations).toContainEqual(
        expect.objectContaining({
          invariant,
          problem: expect.stringContaining(problem),
          remedy: expect.stringContaining(remedy),
        }),
      )
    },
  )

  it('[X6] gives the turn back when the job that had it out of turn has ended', async () => {
    await database.rows(
      `update longshore.jobs set has_turn = false, state = 'waiting', pending = 1 where ${job('turn 1')};
       update longshore.jobs set has_turn = true, state = 'ready', pending = null, score = 0 where ${job('turn 2')}`,
    )
    const linker = await workByHand(database, ['linked'])
    const [early] = await linker.claim(1)
    expect(early?.payload).toBe('turn 2')
    const refused = await see({ repair: true })
    expect(refused.violations.map(({ remedy }) => remedy)).toContainEqual(
      expect.stringContaining('runs out of turn: the turn passes on when that has ended'),
    )
    if (early) await linker.settle([settling(early)])
    expect(await see()).toMatchObject({ isHealthy: true })
    const ran = await runToTheEnd([expect.objectContaining({ invariant: 9, jobId: early?.id })])
    expect(ran.filter(payload => payload.startsWith('turn'))).toEqual(['turn 1', 'turn 3'])
  })

  it('[S15] recomputes every counter of a large graph as it was', async () => {
    const large = producer.group()
    const added: ReturnType<typeof large.add>[] = []
    for (let n = 0; n < 300; n++) {
      const after = [n - 1, n - 7, Math.floor(n / 2)].filter(at => at >= 0 && at < n && n % 5 !== 0)
      added.push(
        large.add(linked, `job ${n}`, {
          after: [...new Set(after)].map(at => added[at] as (typeof added)[number]),
          ...(n % 3 === 0 ? { workflow: `w${n % 4}` } : {}),
        }),
      )
    }
    await large.submit()
    const look = () =>
      database.rows(
        `select id, case when state = 'waiting' then 'waiting' else 'free' end as state, pending, has_turn
         from longshore.jobs where group_id = $1 order by id`,
        [large.id],
      )
    const before = await look()
    await database.rows(
      `update longshore.jobs set has_turn = false, pending = 1 + floor(random() * 5)::int, state = 'waiting'
       where group_id = $1 and workflow is not null`,
      [large.id],
    )
    await database.rows(
      `update longshore.jobs set state = case when r > 0.3 then 'waiting' else 'ready' end::longshore.job_state,
         pending = case when r > 0.3 then ceil(r * 9)::int end
       from (select id as at, random() as r from longshore.jobs) r
       where id = at and group_id = $1 and workflow is null`,
      [large.id],
    )
    expect(await look()).not.toEqual(before)
    expect(await see({ repair: true, pageSize: 50 })).toMatchObject({ isHealthy: true })
    expect(await look()).toEqual(before)
    await runToTheEnd()
    expect(await producer.getGroup(large)).toMatchObject({ state: 'succeeded', counts: { succeeded: 300 } })
  })

  it('tells only what it sees again', async () => {
    const { findings, heal } = {
      findings: [] as string[],
      heal: "delete from longshore.workflows where key = 'left over'",
    }
    const pool = openPool(database.url, 1, () => undefined)
    const options: ExamineOptions = {
      pageSize: 100,
      graceMs: 10_000,
      pauseMs: 0,
      looks: 2,
      onPage: () => undefined,
      onFinding: async ({ problem }) => void findings.push(problem),
      onUnanswered: () => undefined,
    }
    await database.rows("insert into longshore.workflows (key) values ('left over')")
    await examine(pool, 'longshore', options)
    expect(findings).toEqual([expect.stringContaining('nobody has removed it')])
    await examine(
      {
        ...pool,
        async transaction(work) {
          const found = await pool.transaction(work)
          // Between the first look and the second.
          if (Array.isArray(found) && found.length > 0) await database.rows(heal)
          return found
        },
      },
      'longshore',
      options,
    )
    expect(findings).toHaveLength(1)
    await pool.end()
  })

  it('waits for whoever holds a row, and says so when that lasts', async () => {
    await database.rows(`update longshore.jobs set pending = 7 where ${job('second')}`)
    const holder = await database.connect()
    await holder.query('begin')
    await holder.query(`select from longshore.jobs where ${job('second')} for update`)
    const held = await see({ repair: true })
    expect(held.violations).toMatchObject([{ remedy: expect.stringContaining('somebody is in the way') }])
    await holder.query('rollback')
    expect(await see({ repair: true })).toMatchObject({ isHealthy: true, repairedCount: 1 })
  })

  it('[S15] does not make a job ready whose parent is ending as failed just now', async () => {
    const linker = await workByHand(database, ['linked'])
    await database.rows(`update longshore.jobs set score = 0 where ${job('first')}`)
    const [first] = await linker.claim(1)
    expect(first?.payload).toBe('first')
    await database.rows(`update longshore.jobs set pending = 7 where ${job('second')}`)
    const ending = await database.connect()
    const mending = await database.connect()
    await ending.query('begin')
    await ending.query("select longshore.end_linked(j, 'failed') from longshore.jobs j where id = $1", [
      first?.id,
    ])
    const mended = mending.query(`select is_done, said from longshore.repair_waiting(${idOf('second')})`)
    await waitsForLock(database, mending)
    await ending.query('commit')
    expect((await mended).rows).toEqual([{ is_done: false, said: 'it has ended meanwhile' }])
    expect(await database.rows(`select state from longshore.finished_jobs where ${job('second')}`)).toEqual([
      { state: 'dependency_failed' },
    ])
    expect(await see()).toMatchObject({ isHealthy: true })
  })

  describe('a repair that meets the end of a run', () => {
    /** A run is being ended, and has not been committed, when the repair begins. */
    const race = async (payload: string, repair: string) => {
      await database.rows(`update longshore.jobs set score = 0 where ${job(payload)} and state = 'ready'`)
      const linker = await workByHand(database, ['linked'])
      const [claimed] = payload === 'a 1' ? held : await linker.claim(1)
      expect(claimed?.payload).toBe(payload)
      if (payload === 'first')
        await database.rows(`update longshore.jobs set pending = 7 where ${job('third')}`)
      const ending = await database.connect()
      const mending = await database.connect()
      await ending.query('begin')
      await (payload === 'a 1' ? hand : linker).settle([settling(claimed as Claimed)], ending)
      const mended = mending.query(repair)
      await waitsForLock(database, mending)
      await ending.query('commit')
      await mended
      return auditPostgres(db)
    }

    const guards: [title: string, payload: string, repair: string, guard: Weakness, invariant: number][] = [
      [
        'counts what waits under its lock',
        'first',
        `select longshore.repair_waiting(${idOf('third')})`,
        { name: 'repair_waiting', guard: 'job-locks' },
        6,
      ],
      [
        'finds who has the turn under the lock of the workflow',
        'turn 1',
        `select longshore.repair_waiting(${idOf('turn 2')})`,
        { name: 'repair_waiting', guard: 'workflow-lock' },
        9,
      ],
      [
        'counts slots under the lock of their groups',
        'a 1',
        "select longshore.repair_limit('limited', '')",
        { name: 'repair_limit', guard: 'slot-locks' },
        5,
      ],
    ]

    it.each(guards)('[S15] %s', async (_title, payload, repair) => {
      expect(await race(payload, repair)).toEqual([])
      await runToTheEnd()
    })

    it.each(guards)('goes wrong unless it %s', async (_title, payload, repair, guard, invariant) => {
      const told = await weakened(database, [guard], () => race(payload, repair))
      expect(told).toContainEqual(expect.objectContaining({ invariant }))
    })
  })

  it('warns of dead rows, of nobody at the upkeep, and of a Redis that it was not shown', async () => {
    await database.rows('alter table longshore.awaited set (autovacuum_enabled = false)')
    await database.rows(
      `insert into longshore.awaited (job_id, waiter, expires_at)
       select gen_random_uuid(), 'x', now() from generate_series(1, 200);
       delete from longshore.awaited`,
    )
    await database.rows("update longshore.settings set dispatch = 'redis'")
    await database.rows("update longshore.leader set expires_at = now() - interval '1 minute'")
    let warnings = ''
    await eventually('the statistics are there', async () => {
      await database.rows('select pg_stat_force_next_flush()').catch(() => undefined)
      const report = await see({ maxDeadRows: 100 })
      expect(report.isHealthy).toBe(true)
      warnings = report.warnings.join('\n')
      return warnings.includes('table awaited has 200 dead rows')
    })
    expect(warnings).toContain('nobody does the upkeep')
    expect(warnings).toContain('pass --redis-url')
  })

  it('[X12] warns of nearly as many queues as may be, and of rounds of forgetting that come to no end', async () => {
    expect((await see()).warnings.join('\n')).not.toMatch(/queues --max|not forgotten/)
    for (let n = 0; n < 9; n++)
      await database.rows("select longshore.enqueue('plain', '{}', $1)", [{ queue: `q${n}` }])
    await database.rows('update longshore.settings set max_queues = 10')
    await database.rows("update longshore.forgetting set void_from = '2026-01-01 00:00:00+00'")
    const warnings = (await see()).warnings.join('\n')
    expect(warnings).toMatch(
      /there are (9|10) queues, and at most 10 are possible: longshore queues --max allows more/,
    )
    expect(warnings).toContain('are not forgotten since 2026-01-01T00:00:00')
    await database.rows('update longshore.settings set max_queues = 1000')
    await database.rows('update longshore.forgetting set void_from = null')
  })

  it('refuses options that are out of bounds or no durations', async () => {
    await expect(see({ pageSize: 0 })).rejects.toThrow(
      'pageSize must be a whole number from 1 to 2147483647; got 0',
    )
    await expect(see({ grace: Number.NaN })).rejects.toMatchObject({ code: 'CONFIG_INVALID' })
  })
})

describe('through Redis', () => {
  const redis = inject('redisUrl')
  const client = new Redis(redis)
  afterAll(() => client.disconnect())

  it('[X6] finds what Redis lacks, and lets the relay read it again', async () => {
    const relay = createRelay({ postgres: database.urlOf('relay'), redis })
    await relay.start()
    const inOrder = async () => (await auditDispatch(db, { redis, looks: 1 })).length === 0
    const [settings] = await database.rows<{ deployment: string }>(
      'select deployment from longshore.settings',
    )
    const root = rootKey(settings?.deployment ?? '', 'default')
    await eventually(
      'Redis knows every job',
      async () => (await client.exists(root)) === 1 && (await inOrder()),
    )
    await relay.stop()
    const generation = await client.hget(root, 'generation')
    const [ready] = await database.rows<{ id: string; lane: number }>(
      `select id, lane from longshore.jobs where ${job('ready')}`,
    )
    await client.zrem(`${root}:${generation}:lane:${ready?.lane}`, String(ready?.id))
    await client.hdel(`${root}:${generation}:jobs`, String(ready?.id))
    const found = await see({ redis })
    expect(found.violations).toMatchObject([{ invariant: 10, jobId: ready?.id }])
    const mended = await see({ redis, repair: true })
    expect(mended).toMatchObject({ isHealthy: true, repaired: [{ remedy: 'the relay reads it again' }] })

    const again = createRelay({ postgres: database.urlOf('relay'), redis })
    await again.start()
    await eventually('the relay has read it', async () =>
      Boolean(
        await client.hexists(`${root}:${await client.hget(root, 'generation')}:jobs`, String(ready?.id)),
      ),
    )
    await eventually('everything is in order', inOrder)
    expect(await see({ redis })).toMatchObject({ isHealthy: true, warnings: [] })
    // A relay that runs would build it anew by itself.
    await again.stop()
    await client.del(root)
    const empty = await see({ redis, repair: true })
    expect(empty.violations).toMatchObject([
      { invariant: 12, remedy: expect.stringContaining('builds the queue anew') },
    ])
  })
})

describe('longshore doctor', () => {
  const run = (...args: string[]) => spawnCli(['doctor', ...args], { DATABASE_URL: database.url }).ended

  it('[X6] ends with 0 when all is well, 3 when not, 0 when it was repaired', async () => {
    expect(await run()).toMatchObject({
      code: 0,
      stderr: '',
      stdout: expect.stringContaining('everything is in order'),
    })
    await database.rows(`update longshore.jobs set pending = 7 where ${job('second')}`)
    const found = await run('--quiet')
    expect(found).toMatchObject({ code: 3, stderr: '' })
    expect(found.stdout).toMatch(
      /wrong: job .* waits for 7 things.*\[invariant 6\]\n {4}run longshore doctor --repair/,
    )
    const json = await run('--json', '--repair')
    expect(json).toMatchObject({ code: 0, stderr: '' })
    expect(JSON.parse(json.stdout)).toMatchObject({
      isHealthy: true,
      repaired: [{ invariant: 6, remedy: 'it is waiting and waits for 1' }],
      violations: [],
    })
  })

  it('ends with 2 on wrong usage, with 1 when it cannot look', async () => {
    expect(await run('--mend')).toMatchObject({ code: 2, stderr: expect.stringContaining('--mend') })
    expect(await run('--page-size', 'many')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('pageSize'),
    })
    expect(await run('--schema', 'elsewhere')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('longshore migrate --schema elsewhere'),
    })
    const help = await run('--help')
    expect(help).toMatchObject({ code: 0 })
    expect(help.stdout).toContain('Exit codes: 0')
  })
})
