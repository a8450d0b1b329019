/** What workers and relays may do in Postgres, tried as logins: two workers, of `one` and of `two`, a relay and a producer. */
import { createHash } from 'node:crypto'
import pg from 'pg'
import { pino } from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createProducer, createRelay, createWorker, defineTask, doctor, migrate } from '../../src/index.ts'
import { awaitJobs } from '../../src/postgres/await-jobs.ts'
import { newSecret } from '../../src/postgres/secret.ts'
import { useDatabase } from '../support/database.ts'
import { asUser } from '../support/role-kinds.ts'
import { holds } from '../support/role-table.ts'
import { useRoles } from '../support/roles.ts'
import { eventually, gate } from '../support/signals.ts'
import { weakened } from '../support/weaken.ts'

const roles = useRoles()
const database = useDatabase({ isEmpty: true })
const clients = new Map<string, pg.Client>()
const USERS = {
  one: 'worker',
  two: 'worker',
  relay: 'relay',
  shop: 'producer',
  bank: 'producer',
  reader: 'reader',
} as const
type User = keyof typeof USERS
const urlOf = (user: User) => asUser(database.url, `${roles.prefix}_user_${user}`)
const rows = async (user: User, text: string, values: unknown[] = []) =>
  (await (clients.get(user) as pg.Client).query(text, values)).rows as Record<string, unknown>[]
const one = async (user: User, text: string, values: unknown[] = []) =>
  Object.values((await rows(user, text, values))[0] ?? {})[0]

/** The code of what refuses it, or what it answers. */
const refusal = (user: User, text: string, values: unknown[] = []): Promise<unknown> =>
  one(user, text, values).catch((error: { code: string }) => error.code)

beforeAll(async () => {
  await migrate({ postgres: database.url, roles: roles.prefix })
  for (const [user, role] of Object.entries(USERS)) {
    await roles.user(user, { has: [role] })
    const client = new pg.Client(urlOf(user as User))
    await client.connect()
    clients.set(user, client)
  }
})
afterAll(async () => {
  for (const client of clients.values()) await client.end()
})

interface Life {
  id: number
  secret: string
}
async function register(user: User, tasks: string[]): Promise<Life> {
  const secret = newSecret()
  const text =
    "select longshore.register_worker('by hand', '{default}', $1, '{default}', '{}', '{c:}', 60000, false, $2)"
  return { id: (await one(user, text, [tasks, secret])) as number, secret }
}
const CLAIM =
  "select ids, split_part(lease_tokens, '*', 1) as lease_token from longshore.settle_and_claim($1, '{}', '{}', null, null, 1, p_secret => $2)"
/** What it runs then. */
async function claim(user: User, { id, secret }: Life): Promise<{ job: string; token: string }> {
  const [row] = await rows(user, CLAIM, [id, secret])
  return { job: String(row?.['ids']), token: String(row?.['lease_token']) }
}
const enqueue = (task: string) => one('shop', 'select longshore.enqueue($1, \'{"card": 4242}\')', [task])
const settle = (user: User, life: Life, others: object[]) =>
  rows(
    user,
    "select busy, lost, wait from longshore.settle_and_claim($1, '{}', '{}', null, $2, 0, p_secret => $3)",
    [life.id, JSON.stringify(others), life.secret],
  )

/** A job that `one` runs, and a worker of `two` that would like to have it. */
async function stolen(task: string) {
  await rows('one', 'select longshore.register_tasks($1)', [
    JSON.stringify([{ name: task, queue: 'default', tag: 'default', maxAttempts: 3 }]),
  ])
  await enqueue(task)
  const victim = await register('one', [task])
  const thief = await register('two', [task])
  return { victim, thief, ...(await claim('one', victim)) }
}

/** As this worker, with this secret: each takes what is asked for as $1 to $4: worker, secret, job, token. */
const CALLS: Readonly<Record<string, string>> = {
  settle_and_claim:
    'longshore.settle_and_claim($1, array[$3::uuid], array[$4::bigint], null, null, 5, p_secret => $2)',
  complete:
    "(select longshore.complete($1, $3, $4, null, $2) from (select set_config('longshore_run.lease', $4::bigint::text, false) offset 0) s)",
  hold_run: 'longshore.hold_run($1, $3, $4, $2)',
  read_runs: 'longshore.read_runs($1, $4::bigint is null, $2) where $3::uuid is not null',
  read_payload: 'longshore.read_payload($1, $3, $4, $2)',
  read_parents: "longshore.read_parents($1, $3, $4, '00000000-0000-0000-0000-000000000000', null, 9, $2)",
  read_group_of: 'longshore.read_group_of($1, $3, $4, $2)',
  beat: 'longshore.beat($1, p_secret => $2) where ($3::uuid, $4::bigint) is not null',
  set_properties: "longshore.set_properties($1, '{}', '{c:}', $2) where ($3::uuid, $4::bigint) is not null",
  set_listening: 'longshore.set_listening($1, true, $2) where ($3::uuid, $4::bigint) is not null',
  best_before: 'longshore.best_before($1, 0, $2) where ($3::uuid, $4::bigint) is not null',
  unregister_worker: 'longshore.unregister_worker($1, $2) where ($3::uuid, $4::bigint) is not null',
  write_logs:
    "longshore.write_logs('[]', json_build_array(json_build_object('job', $3::uuid, 'lease', $4::bigint, 'done', 1, 'attempt', 1)), $1, $2)",
}
const call = (
  name: string,
  user: User,
  life: { id: number; secret: string | null },
  job: string,
  token: string,
) => refusal(user, `select ${CALLS[name]}`, [life.id, life.secret, job, token])
const NOT_THIS_WORKER = 'LS005'

describe('a worker', () => {
  holds(
    'Postgres',
    'worker',
    'register its tasks with their limits, claim, run and settle jobs and write their logs, with a secret that each start of a worker makes up',
    async () => {
      const task = defineTask<string>({ name: 'ordinary', concurrency: 2 })
      const said: string[] = []
      const logger = pino({ level: 'trace' }, { write: text => void said.push(text) })
      const worker = createWorker({
        postgres: urlOf('one'),
        logger,
        handlers: [
          task.handle(async (job, ctx) => {
            ctx.log('runs')
            return [await ctx.groupId(), (await ctx.parents.all()).length, job.payload.length, process.env]
          }),
        ],
      })
      await worker.start()
      const producer = createProducer({ postgres: urlOf('shop') })
      const group = producer.group()
      const large = 'x'.repeat(100_000)
      const last = group.add(task, large, { after: group.add(task, 'small') })
      await group.submit()
      const { result } = (await producer.waitFor(last)) as { result?: unknown[] }
      expect(result?.slice(0, 3)).toEqual([group.id, 1, 100_000])
      await eventually('its lines are stored', async () => (await producer.getLogs(last)).length > 0)
      // Nothing that anybody reads holds the secret.
      const [stored] = await database.rows<{ secret: Buffer }>(
        "select secret from longshore.workers where name not like 'by hand'",
      )
      const texts = await database.rows<{ query: string }>('select query from pg_stat_activity')
      const seen = JSON.stringify([said, texts, result, await worker.health(), await worker.prometheus()])
      const hashes = [...seen.matchAll(/[0-9a-f]{32}/g)].map(([hex]) =>
        createHash('sha256').update(Buffer.from(hex, 'hex')).digest('hex'),
      )
      expect(stored?.secret).toHaveLength(32)
      expect(hashes).not.toContain(stored?.secret.toString('hex'))
      await worker.stop()
      await producer.close()
    },
  )

  holds(
    'Postgres',
    'worker',
    'read payload, parents or group of a job that another worker holds, or ids and lease tokens of jobs',
    async () => {
      const { victim, thief, job, token } = await stolen('read')
      for (const name of ['read_payload', 'read_parents', 'read_group_of', 'read_runs'])
        for (const secret of [null, thief.secret, '\\x00'])
          expect([name, await call(name, 'two', { id: victim.id, secret }, job, token)]).toEqual([
            name,
            NOT_THIS_WORKER,
          ])
      expect(await call('read_payload', 'two', thief, job, token)).toBeNull()
      expect(await call('read_parents', 'two', thief, job, token)).toBe('LS007')
      expect(await call('read_group_of', 'two', thief, job, token)).toBe('LS007')
      expect(
        await rows('two', 'select * from longshore.read_runs($1, false, $2)', [thief.id, thief.secret]),
      ).toEqual([])
      for (const table of ['jobs', 'finished_jobs'])
        for (const column of ['id', 'lease_token', 'worker_id', 'group_id', '*'])
          expect(await refusal('two', `select ${column} from longshore.${table}`)).toBe('42501')
      expect(await call('read_payload', 'one', victim, job, token)).toEqual({ card: 4242 })
      expect(await call('read_group_of', 'one', victim, job, token)).toBeNull()
      await settle('one', victim, [{ id: job, token, outcome: 'failed' }])
    },
  )

  holds(
    'Postgres',
    'worker',
    'claim, settle, complete, beat, listen, change properties or leave in the name of another worker',
    async () => {
      const { victim, thief, job, token } = await stolen('ended')
      for (const name of Object.keys(CALLS))
        for (const secret of [null, thief.secret])
          expect([name, await call(name, 'two', { id: victim.id, secret }, job, token)]).toEqual([
            name,
            NOT_THIS_WORKER,
          ])
      // Nor as itself.
      expect(await call('complete', 'two', thief, job, token)).toBe('lost')
      expect(await call('hold_run', 'two', thief, job, token)).toBe('lost')
      expect(await settle('two', thief, [{ id: job, token, outcome: 'failed' }])).toMatchObject([
        { lost: job },
      ])
      const [row] = await database.rows('select worker_id, state from longshore.jobs where id = $1', [job])
      expect(row).toEqual({ worker_id: victim.id, state: 'running' })
      expect(await settle('one', victim, [{ id: job, token, outcome: 'failed' }])).toMatchObject([
        { lost: null },
      ])
    },
  )

  it('[X15] a worker whose row is gone is told so as before: its runs are lost, and it is dead', async () => {
    const { victim, job, token } = await stolen('rescued')
    await database.rows("update longshore.workers set expires_at = '-infinity' where id = $1", [victim.id])
    await database.rows('select longshore.rescue(3600000, 100)')
    expect(await settle('one', victim, [{ id: job, token, outcome: 'failed' }])).toMatchObject([
      { lost: job },
    ])
    const told =
      'select wait from longshore.settle_and_claim($1, array[]::uuid[], array[]::bigint[], null, null, 1, p_secret => $2)'
    expect(await one('one', told, [victim.id, victim.secret])).toBe('dead')
    const beat = 'select is_alive from longshore.beat($1, p_secret => $2)'
    expect(await one('one', beat, [victim.id, victim.secret])).toBe(false)
    expect(await call('hold_run', 'one', victim, job, token)).toBe('lost')
    expect(await call('unregister_worker', 'one', victim, job, token)).toBe(false)
  })

  holds('Postgres', 'worker', 'write log lines or progress of a job that it has not held', async () => {
    const { victim, thief, job, token } = await stolen('logged')
    const line = (lease: string, seq: number) =>
      JSON.stringify([{ job, lease, seq, age: 0, attempt: 1, level: 'info', message: `line ${seq}` }])
    const write = (user: User, life: Life, lease: string, seq: number) =>
      refusal(user, "select longshore.write_logs($1, '[]', $2, $3)", [line(lease, seq), life.id, life.secret])
    const lines = async () =>
      (await database.rows('select seq from longshore.job_logs where job_id = $1 order by 1', [job])).map(
        row => row['seq'],
      )
    expect(await write('one', victim, token, 1)).toBe(0)
    expect(await write('two', thief, token, 2)).toBe(1)
    expect(await write('two', { id: victim.id, secret: thief.secret }, token, 2)).toBe(NOT_THIS_WORKER)
    await call('write_logs', 'two', thief, job, token)
    expect(await database.rows('select from longshore.job_progress where job_id = $1', [job])).toEqual([])
    // It is tried again elsewhere: late lines of the first run are still its worker's, those of the second are not.
    await settle('one', victim, [{ id: job, token, outcome: 'retry', error: {}, delayMs: 0 }])
    const second = await claim('two', thief)
    expect(second.job).toBe(job)
    expect(await write('one', victim, token, 3)).toBe(0)
    expect(await write('one', victim, second.token, 4)).toBe(1)
    expect(await write('two', thief, token, 5)).toBe(1)
    await settle('two', thief, [{ id: job, token: second.token, outcome: 'failed', error: {} }])
    expect(await write('two', thief, second.token, 6)).toBe(0)
    // And when it has left.
    await call('unregister_worker', 'one', victim, job, token)
    expect(await write('one', victim, token, 7)).toBe(0)
    expect(await write('two', { id: victim.id, secret: thief.secret }, token, 8)).toBe(1)
    expect(await lines()).toEqual([1, 3, 6, 7])
  })

  holds('Postgres', 'worker', 'read the secret of a worker or of the leader, or go without one', async () => {
    for (const user of ['one', 'relay', 'reader', 'shop'] as const)
      for (const table of ['workers', 'leader', 'past_workers'])
        for (const column of ['secret', '*', `${table}::text`])
          expect([
            user,
            table,
            column,
            await refusal(user, `select ${column} from longshore.${table}`),
          ]).toEqual([user, table, column, '42501'])
    for (const secret of ['null', "'\\x0102'"]) {
      const given = `'me', '{default}', '{t}', '{default}', '{}', '{c:}', 60000, false, ${secret}`
      expect(await refusal('one', `select longshore.register_worker(${given})`)).toBe(NOT_THIS_WORKER)
      expect(await refusal('one', `select longshore.lead_as_worker('me', 1000, ${secret})`)).toBe(
        NOT_THIS_WORKER,
      )
    }
    // Nor for what an administrator does by hand, without one.
    const [byHand] = await database.rows<{ id: number }>(
      "select longshore.register_worker('by hand', '{default}', '{t}', '{default}', '{}', '{c:}', 60000) as id",
    )
    expect(await refusal('one', 'select longshore.beat($1)', [byHand?.id])).toBe(NOT_THIS_WORKER)
  })

  holds(
    'Postgres',
    'worker',
    'drain every worker and let it take jobs again, and write the end of a group whose jobs have ended',
    async () => {
      const { id } = await register('one', ['drained'])
      const drain = 'select has_changed from longshore.drain_workers($1, $2)'
      expect(await one('two', drain, [[String(id)], true])).toBe(true)
      expect(
        await one('two', 'select drained_at is not null from longshore.workers where id = $1', [id]),
      ).toBe(true)
      expect(await one('two', drain, [[String(id)], false])).toBe(true)
      expect(await rows('two', 'select * from longshore.close_groups(array[gen_random_uuid()])')).toEqual([])
    },
  )

  holds(
    'Postgres',
    'worker',
    'enqueue, cancel or read what producers enqueue; read the tables of jobs; write any table',
    async () => {
      for (const text of [
        "select longshore.enqueue('task')",
        "select longshore.cancel('{}')",
        "select longshore.read_jobs('{}', false)",
        'update longshore.workers set listening = true',
        "update longshore.leader set expires_at = 'infinity'",
        "update longshore.settings set dispatch = 'redis'",
        'delete from longshore.awaited',
        'select from longshore.workers for update',
        'select asked_by from longshore.awaited',
        'select holder from longshore.leader',
      ])
        expect([text, await refusal('one', text)]).toEqual([text, '42501'])
      const [writes] = await database.rows(
        `select count(*) from information_schema.column_privileges
         where table_schema = 'longshore' and grantee like $1 and privilege_type in ('INSERT', 'UPDATE')
           and grantee not like '%owner'`,
        [`${roles.prefix}\\_%`],
      )
      expect(writes).toEqual({ count: '0' })
    },
  )
})

describe('the leader', () => {
  const DUTIES = [
    'promote_due(1, $1, $2)',
    'rescue(3600000, 1, $1, $2)',
    "sweep_groups('00000000-0000-0000-0000-000000000000', 1, $1, $2)",
    "watch_groups('00000000-0000-0000-0000-000000000000', 1, 1, 3600000, $1, $2)",
    'change_limits($1, $2)',
    "renew_limits(0, '{}', 500, $1, $2)",
    'forget_limits(3600000, $1, $2)',
    'forget_heads(0, $1, $2)',
    'prepare_history(1, $1, $2)',
    'forget_history($1, $2)',
    "note_duty('history', null, $1, $2)",
    'forget_expired($1, $2)',
    'maintain_log_partitions(1, $1, $2)',
  ]
  const NOT_LEADER = 'LS006'
  const free = () =>
    database.rows(
      "update longshore.leader set holder = null, secret = null, rank = 0, expires_at = '-infinity'",
    )
  const state = async () =>
    (
      await database.rows<Record<string, unknown>>(
        'select holder, epoch, asleep, rank, expires_at > now() as leads from longshore.leader',
      )
    )[0]
  const LEAD = {
    one: 'select longshore.lead_as_worker($1, 3000, $2)',
    two: 'select longshore.lead_as_worker($1, 3000, $2)',
    relay: 'select longshore.lead_as_relay($1, 3000, true, $2)',
  }
  /** Leads from now on. */
  const lead = async (user: keyof typeof LEAD) => {
    await free()
    const key = [`the ${user}`, newSecret()]
    await rows(user, LEAD[user], key)
    return key
  }

  holds('Postgres', 'worker', 'lead with the lowest rank and do the upkeep while no relay does', async () => {
    const key = await lead('one')
    expect(await state()).toMatchObject({ holder: 'the one', rank: 0, leads: true })
    for (const duty of DUTIES) await rows('one', `select longshore.${duty}`, key)
    // It has not led for as long as it says: a worker that is late gets its time.
    const { id } = await register('two', ['late'])
    await database.rows(
      "update longshore.workers set expires_at = now() - interval '1 second' where id = $1",
      [id],
    )
    expect(await rows('one', 'select * from longshore.rescue(3600000, 100, $1, $2)', key)).toEqual([])
    expect(await one('one', 'select longshore.switch_to_direct($1, $2)', key)).toBe(false)
    expect(await one('relay', LEAD.relay, ['the relay', newSecret()])).not.toBeNull()
    expect(await refusal('one', `select longshore.${DUTIES[0]}`, key)).toBe(NOT_LEADER)
    await database.rows('delete from longshore.workers where id = $1', [id])
  })

  holds(
    'Postgres',
    'worker',
    'lead as a relay or for longer than a minute at a time, or do the upkeep without leading',
    async () => {
      const [holder] = await lead('one')
      expect(await refusal('two', LEAD.relay, [holder, newSecret()])).toBe('42501')
      expect(await refusal('two', 'select longshore.lead($1, 3000, 2, $2)', [holder, newSecret()])).toBe(
        '42501',
      )
      for (const ms of [60_001, 99, 0, -1, 2 ** 31 - 1])
        expect(
          await refusal('two', 'select longshore.lead_as_worker($1, $3, $2)', [holder, newSecret(), ms]),
        ).toBe('22023')
      const before = await state()
      for (const secret of [newSecret(), null]) {
        const forged = [holder, secret]
        if (secret) expect(await refusal('two', LEAD.two, forged)).toBeNull()
        for (const duty of DUTIES)
          expect([duty, await refusal('two', `select longshore.${duty}`, forged)]).toEqual([duty, NOT_LEADER])
        expect(await refusal('two', `select longshore.${DUTIES[0]}`, [null, null])).toBe(NOT_LEADER)
        await rows('two', 'select longshore.resign($1, $2)', forged)
        expect(await one('two', 'select longshore.switch_to_direct($1, $2)', forged)).toBe(false)
      }
      expect(await state()).toEqual(before)
      // When the lease has run out the name is free; it is another term all the same.
      await database.rows("update longshore.leader set expires_at = '-infinity'")
      const epoch = await one('two', LEAD.two, [holder, newSecret()])
      expect(Number(epoch)).toBe(Number(before?.['epoch']) + 1)
    },
  )

  holds(
    'Postgres',
    'relay',
    'lead before workers, do the upkeep, read the outbox and note how far Redis is; read figures of all tables but what jobs carry',
    async () => {
      await lead('one')
      const key = ['the relay', newSecret()]
      expect(await one('relay', LEAD.relay, key)).not.toBeNull()
      for (const duty of DUTIES) await rows('relay', `select longshore.${duty}`, key)
      const read =
        "select is_leader from longshore.relay_read($1, '{}', '{}', '{}', 0, 1, '{}', '{}', p_secret => $2)"
      expect(await one('relay', read, key)).toBe(true)
      expect(await one('relay', "select longshore.note_generation('q', 'g', 7, $1, $2)", key)).toBe(true)
      await rows('relay', "select longshore.note_built('q', 'g', 3, $1, $2)", key)
      expect(await rows('relay', "select seq from longshore.relayed where queue = 'q'")).toEqual([
        { seq: '3' },
      ])
      await rows('relay', "select longshore.note_generation('q2', 'g', 7, $1, $2)", key)
      await rows('relay', "select longshore.note_ended('q2', 'g', $1, $2)", key)
      expect(await rows('relay', "select from longshore.relayed where queue = 'q2'")).toEqual([])
      expect(await one('relay', "select longshore.set_dispatch('redis', $1, $2)", key)).toBe(true)
      expect(await one('relay', "select longshore.set_dispatch('direct', $1, $2)", key)).toBe(true)
      expect(await rows('relay', 'select holder, epoch, since from longshore.leader')).toHaveLength(1)
      await rows('relay', 'select longshore.resign($1, $2)', key)
      expect(await state()).toMatchObject({ leads: false })
    },
  )

  holds(
    'Postgres',
    'relay',
    'read the outbox, raise the epoch, note a generation, change the dispatch or do the upkeep without leading, or in the name of the leader',
    async () => {
      const [holder] = await lead('relay')
      const before = await state()
      for (const forged of [
        [holder, newSecret()],
        [holder, null],
        ['another', newSecret()],
      ]) {
        const read =
          "select is_leader from longshore.relay_read($1, '{}', '{}', '{}', 0, 1, '{}', '{}', p_secret => $2)"
        expect(await one('relay', read, forged)).toBe(false)
        expect(await one('relay', 'select longshore.raise_epoch(100, $1, $2)', forged)).toBeNull()
        expect(await one('relay', "select longshore.note_generation('q2', 'g', 7, $1, $2)", forged)).toBe(
          false,
        )
        await rows('relay', "select longshore.note_built('q', 'g', 9, $1, $2)", forged)
        await rows('relay', "select longshore.note_ended('q', 'g', $1, $2)", forged)
        await rows('relay', 'select longshore.set_asleep(true, $1, $2)', forged)
        await rows('relay', 'select longshore.resign($1, $2)', forged)
        expect(await refusal('relay', "select longshore.set_dispatch('redis', $1, $2)", forged)).toBe(
          NOT_LEADER,
        )
        for (const duty of DUTIES)
          expect([duty, await refusal('relay', `select longshore.${duty}`, forged)]).toEqual([
            duty,
            NOT_LEADER,
          ])
      }
      expect(await state()).toEqual(before)
      expect(await database.rows('select queue, seq from longshore.relayed')).toEqual([
        { queue: 'q', seq: '3' },
      ])
    },
  )

  holds('Postgres', 'relay', 'raise the epoch so far that no later one is possible', async () => {
    const key = await lead('relay')
    for (const above of [String(2n ** 52n + 1n), String(2n ** 63n - 2n), '-1'])
      expect(await refusal('relay', 'select longshore.raise_epoch($3, $1, $2)', [...key, above])).toBe(
        '22023',
      )
  })

  holds(
    'Postgres',
    'relay',
    'enqueue, claim, settle or register; read payloads, results or logs; read secrets; write any table',
    async () => {
      for (const text of [
        "select longshore.enqueue('task')",
        "select longshore.settle_and_claim(1, '{}', '{}', null, null, 1)",
        "select longshore.register_tasks('[]')",
        'select payload from longshore.jobs',
        'select result from longshore.finished_jobs',
        'select message from longshore.job_logs',
        'select secret from longshore.workers',
        'select secret from longshore.leader',
        "update longshore.leader set expires_at = 'infinity'",
        "update longshore.settings set dispatch = 'redis'",
        'update longshore.relayed set seq = 0',
        'delete from longshore.awaited',
        'select longshore.lead_as_worker($$me$$, 1000, $$\\x00$$)',
      ])
        expect([text, await refusal('relay', text)]).toEqual([text, '42501'])
    },
  )
})

describe('a producer', () => {
  holds(
    'Postgres',
    'producer',
    'wait for more jobs at once than the settings say, for longer than 32 days, or end the waits of another user',
    async () => {
      const ids = (from: number, many: number) =>
        Array.from(
          { length: many },
          (_, n) => `00000000-0000-7000-8000-${String(from + n).padStart(12, '0')}`,
        )
      const wait = (user: User, from: number, many: number, ms = 1000) =>
        refusal(user, "select longshore.await_jobs('me', $1, $2, false)", [
          ids(from, many),
          Array(many).fill(ms),
        ])
      expect(await wait('shop', 0, 10_001)).toBe('LS008')
      expect(await wait('shop', 0, 1, 33 * 86_400_000)).toBe('LS008')
      expect(await wait('shop', 0, 1, -1)).toBe('LS008')
      await database.rows('update longshore.settings set most_waits = 2500')
      expect(await wait('shop', 0, 2000)).toBe('')
      expect(await wait('shop', 2000, 1000)).toBe('LS008')
      expect(await wait('bank', 2000, 1000)).toBe('')
      const db = {
        query: async (text: string, values: unknown[] = []) => ({ rows: await rows('shop', text, values) }),
      }
      const more = ids(2000, 1000).map(id => ({ id, timeoutMs: 1000 }))
      await expect(awaitJobs(db, 'longshore', 'me', more)).rejects.toMatchObject({
        code: 'TOO_MANY_WAITS',
        message: expect.stringContaining('most_waits'),
      })
      await rows('bank', "select longshore.forget_awaited('me', $1)", [ids(0, 3000)])
      const left = 'select asked_by::regrole::text as role, count(*)::int from longshore.awaited group by 1'
      expect(await database.rows(left)).toEqual([{ role: `${roles.prefix}_user_shop`, count: 2000 }])
      await rows('shop', "select longshore.forget_awaited('me', $1)", [ids(0, 3000)])
      expect(await database.rows(left)).toEqual([])
      await database.rows('update longshore.settings set most_waits = 1000000')
    },
  )

  holds(
    'Postgres',
    'producer',
    'stop claims, new workers or enqueues with a lock unseen: `/readyz` and `doctor` name its session',
    async () => {
      const task = defineTask({ name: 'locked out' })
      const ran = gate()
      const worker = createWorker({
        postgres: urlOf('one'),
        logger: pino({ level: 'silent' }),
        handlers: [task.handle(() => ran.open())],
      })
      const { id } = await worker.start()
      const relay = createRelay({ postgres: urlOf('relay'), logger: pino({ level: 'silent' }) })
      await relay.start()
      const holder = clients.get('shop') as pg.Client & { processID: number }
      const key = (name: string) => `hashtext('"longshore".${name}')`
      const says = expect.stringMatching(
        new RegExp(
          `connection ${holder.processID} \\(user ${roles.prefix}_user_shop.*pg_terminate_backend\\(${holder.processID}\\)`,
        ),
      )
      for (const lock of [
        `${key('worker')}, ${id}`,
        `${key('limits')}, 0`,
        `${key('limits')}, 1`,
        key('make_lane'),
      ]) {
        expect(await worker.health()).toMatchObject({ isReady: true, locks: 'free' })
        await rows('shop', `select pg_advisory_lock(${lock})`)
        const held = { isReady: false, postgres: 'up', locks: says }
        expect(await worker.health()).toMatchObject(held)
        expect(await relay.health()).toMatchObject(held)
        if (lock.includes('worker')) {
          expect((await doctor({ postgres: urlOf('reader'), looks: 1 })).warnings).toContainEqual(says)
          await enqueue('locked out')
        }
        await rows('shop', `select pg_advisory_unlock(${lock})`)
      }
      await ran.opened
      expect(await relay.health()).toMatchObject({ isReady: true, locks: 'free' })
      expect((await doctor({ postgres: urlOf('reader'), looks: 1 })).warnings).not.toContainEqual(says)
      // In a transaction that is left open, also as the one who waits for a lock.
      await rows('shop', `begin; select pg_advisory_xact_lock(${key('worker')}, ${id})`)
      expect(await worker.health()).toMatchObject({ isReady: false, locks: says })
      await rows('shop', 'rollback')
      expect(await worker.health()).toMatchObject({ isReady: true })
      await worker.stop()
      await relay.stop()
    },
  )
})

describe('without its guard', () => {
  beforeAll(() =>
    database.rows(
      "create function longshore.take_for_worker(int, bytea) returns int language sql as 'select $1'",
    ),
  )
  const weak = (name: string) => ({ name, call: 'need_worker', other: 'take_for_worker' })
  const DIRECT = Object.keys(CALLS).filter(
    name => !['read_parents', 'read_group_of', 'write_logs'].includes(name),
  )
  it.each(DIRECT)('[X15] %s does it for another worker', async name => {
    const { victim, thief, job, token } = await stolen(`weak ${name}`)
    const attack = () => call(name, 'two', { id: victim.id, secret: thief.secret }, job, token)
    expect(await attack()).toBe(NOT_THIS_WORKER)
    expect(await weakened(database, [weak(name)], attack)).not.toBe(NOT_THIS_WORKER)
    await database.rows('delete from longshore.jobs where id = $1', [job])
  })

  it('[X15] need_run tells of the parents of another’s job, and write_logs writes its lines', async () => {
    const { victim, thief, job, token } = await stolen('weak run')
    const unguarded = { name: 'need_run', guard: 'own-run' }
    expect(
      await weakened(database, [unguarded], () => call('read_group_of', 'two', thief, job, token)),
    ).toBeNull()
    const write = () =>
      refusal('two', "select longshore.write_logs($1, '[]', $2, $3)", [
        JSON.stringify([{ job, lease: token, seq: 1, age: 0, attempt: 1, level: 'info', message: 'forged' }]),
        thief.id,
        thief.secret,
      ])
    expect(await write()).toBe(1)
    const anyones = { name: 'write_logs', guard: 'own-worker' }
    expect(await weakened(database, [anyones], write)).toBe(0)
    await database.rows('delete from longshore.jobs where id = $1', [job])
    expect(victim.id).not.toBe(thief.id)
  })

  it('[X15] lead takes the lease by a name, and duties are done by anyone', async () => {
    await database.rows(
      "update longshore.leader set holder = null, secret = null, rank = 0, expires_at = '-infinity'",
    )
    await rows('one', "select longshore.lead_as_worker('me', 60000, $1)", [newSecret()])
    const forged = () => refusal('two', "select longshore.lead_as_worker('me', 60000, $1)", [newSecret()])
    expect(await forged()).toBeNull()
    const byName = { name: 'lead', guard: 'own-secret', replacement: 'l.holder = p_holder' }
    const duty = () => refusal('two', "select longshore.maintain_log_partitions(1, 'you', $1)", [newSecret()])
    expect(await duty()).toBe('LS006')
    const unchecked = { name: 'need_leader', guard: 'only-leader' }
    expect(await weakened(database, [unchecked], duty)).toBe('(t,,0)')
    expect(await weakened(database, [byName], forged)).not.toBeNull()
  })
})
