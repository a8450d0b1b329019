/** Roles in Postgres: made once, kept in order by later migrations, and refused what they have no business with. */
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  createProducer,
  createRelay,
  createWorker,
  defineTask,
  doctor,
  type MigrateOptions,
  migrate,
} from '../../src/index.ts'
import { newSecret } from '../../src/postgres/secret.ts'
import { useDatabase } from '../support/database.ts'
import { asUser, KINDS, type Kind } from '../support/role-kinds.ts'
import { useRoles } from '../support/roles.ts'
import { spawnCli } from '../support/spawn-cli.ts'

const roles = useRoles()
const database = useDatabase({ isEmpty: true })
const clients = new Map<string, pg.Client>()
let migrator: string

const install = (options: Partial<MigrateOptions> = {}) =>
  migrate({ postgres: asUser(database.url, migrator), ...options })

/** What the first migrations said. */
const notes: string[] = []

/** One statement as a user with this role. */
const as = async (kind: Kind, text: string, values: unknown[] = []) =>
  (await (clients.get(kind) as pg.Client).query(text, values)).rows as Record<string, unknown>[]

const grantsNow = () =>
  database.rows<{ what: string; acl: string }>(`
    select p.oid::regprocedure::text as what, array(select unnest(p.proacl)::text order by 1)::text as acl
    from pg_proc p where p.pronamespace = 'longshore'::regnamespace
    union all
    select c.relname, array(select unnest(c.relacl)::text order by 1)::text
    from pg_class c where c.relnamespace = 'longshore'::regnamespace
    union all
    select a.attrelid::regclass || '.' || a.attname, array(select unnest(a.attacl)::text order by 1)::text
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    where c.relnamespace = 'longshore'::regnamespace and a.attacl is not null
    order by 1`)

beforeAll(async () => {
  // As on a managed server: no superuser, but one who may make roles.
  migrator = await roles.user('migrator', { attributes: 'createrole' })
  await roles.admin(`grant create on database ${new URL(database.url).pathname.slice(1)} to "${migrator}"`)
  const onNotice = (note: string) => void notes.push(note)
  await Promise.all(Array.from({ length: 10 }, () => install({ roles: roles.prefix, onNotice })))
  for (const kind of KINDS) {
    const client = new pg.Client(asUser(database.url, await roles.user(kind, { has: [kind] })))
    await client.connect()
    clients.set(kind, client)
  }
})
afterAll(async () => {
  for (const client of clients.values()) await client.end()
})

describe('migrate --roles', () => {
  it('[X7] makes each role once, without a login, when ten processes migrate at once', async () => {
    const made = await roles.admin<{ name: string; attributes: string }>(
      `select rolname as name, concat_ws(',', rolcanlogin, rolsuper, rolcreatedb, rolcreaterole, rolbypassrls) as attributes
       from pg_roles where rolname = any ($1) order by 1`,
      [KINDS.map(kind => `${roles.prefix}_${kind}`)],
    )
    expect(made.map(({ name }) => name.slice(roles.prefix.length + 1)).sort()).toEqual([...KINDS].sort())
    for (const { attributes } of made) expect(attributes).toBe('f,f,f,f,f')
  })

  it('changes nothing when it is run again', async () => {
    const before = await grantsNow()
    const steps = await install({ roles: true })
    expect(steps.map(({ kind }) => kind)).toEqual(['grants'])
    expect(await grantsNow()).toEqual(before)
    expect(await install()).toEqual([])
  })

  it('keeps the grants of functions that a later migrate makes anew', async () => {
    const before = await grantsNow()
    await database.rows(
      "update longshore.functions set checksum = 'old' where name in ('enqueue', 'beat', 'rescue')",
    )
    const steps = await install()
    expect(steps.map(({ kind }) => kind)).toEqual(['function', 'function', 'function', 'grants'])
    expect(await grantsNow()).toEqual(before)
  })

  it('takes away what somebody has granted beside, and gives back what was revoked', async () => {
    const before = await grantsNow()
    const [producer, worker] = [`"${roles.prefix}_producer"`, `"${roles.prefix}_worker"`]
    await database.rows(`
      grant select, delete on longshore.jobs to ${producer}; grant update (payload) on longshore.jobs to ${worker};
      revoke execute on function longshore.beat from ${worker};
      grant execute on function longshore.forget_days to public`)
    await install({ roles: true })
    expect(await grantsNow()).toEqual(before)
  })

  it('shows what it would do, and does nothing, with --dry-run', async () => {
    const { ended } = spawnCli([
      'migrate',
      '--roles',
      `${roles.prefix}_dry`,
      '--schema',
      'dry',
      '--dry-run',
      '--database-url',
      database.url,
    ])
    const { code, stdout } = await ended
    expect(code).toBe(0)
    expect(stdout).toContain(`create role "${roles.prefix}_dry_relay" nologin`)
    expect(stdout).toMatch(new RegExp(`grant usage on schema "dry" to "${roles.prefix}_dry_producer"`))
    expect(await roles.admin('select from pg_roles where rolname like $1', [`${roles.prefix}_dry%`])).toEqual(
      [],
    )
  })

  it("refuses the roles of another installation, and another prefix than the installation's own", async () => {
    await expect(
      migrate({ postgres: database.url, schema: 'other', roles: roles.prefix }),
    ).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringContaining('belongs to another installation on this server'),
    })
    await expect(install({ roles: 'elsewhere' })).rejects.toMatchObject({ code: 'CONFIG_INVALID' })
    await expect(install({ roles: 'drop"' })).rejects.toMatchObject({ code: 'CONFIG_INVALID' })
  })

  it('says what to do where the user may make no roles, or may not act as the owner', async () => {
    const plain = asUser(database.url, await roles.user('plain'))
    await roles.admin(
      `grant create on database ${new URL(database.url).pathname.slice(1)} to "${roles.prefix}_user_plain"`,
    )
    await expect(
      migrate({ postgres: plain, schema: 'plain', roles: `${roles.prefix}_p` }),
    ).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      message: expect.stringContaining(`create role "${roles.prefix}_p_owner" nologin;`),
    })
    await expect(migrate({ postgres: plain })).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
  })

  it('leaves nothing in the schema that is not the owner role’s, nor open to everybody', async () => {
    const strays = await database.rows(
      `select c.relname as name from pg_class c
       where c.relnamespace = 'longshore'::regnamespace and pg_get_userbyid(c.relowner) <> $1
       union all
       select p.proname from pg_proc p
       where p.pronamespace = 'longshore'::regnamespace and (pg_get_userbyid(p.proowner) <> $1
         or p.proacl is null or exists (select from aclexplode(p.proacl) a where a.grantee = 0))`,
      [`${roles.prefix}_owner`],
    )
    expect(strays).toEqual([])
  })

  it('runs functions for others with a fixed search path only', async () => {
    const loose = await database.rows(
      `select distinct p.proname as name from pg_proc p, aclexplode(p.proacl) a
       where p.pronamespace = 'longshore'::regnamespace and a.grantee <> p.proowner and p.provolatile <> 'i'
         and not (p.prosecdef and 'search_path=pg_catalog, pg_temp' = any (p.proconfig))`,
    )
    expect(loose).toEqual([])
  })

  it('lets partitions that the upkeep makes later be used without further grants', async () => {
    const leads = async (kind: Kind, call: string, name: string, duty: string) => {
      const secret = newSecret()
      await as(kind, `select longshore.${call}`, [name, secret])
      await as(kind, `select longshore.${duty}(20, $1, $2)`, [name, secret])
      await as(kind, 'select longshore.resign($1, $2)', [name, secret])
    }
    await leads('relay', 'lead_as_relay($1, 60000, true, $2)', 'a relay', 'prepare_history')
    await leads('worker', 'lead_as_worker($1, 60000, $2)', 'a worker', 'maintain_log_partitions')
    const strays = await database.rows(
      `select c.relname from pg_class c where c.relnamespace = 'longshore'::regnamespace and pg_get_userbyid(c.relowner) <> $1`,
      [`${roles.prefix}_owner`],
    )
    expect(strays).toEqual([])
    expect(await as('reader', 'select id, state from longshore.finished_jobs')).toEqual([])
  })
})

const ID = "'0198c0de-0000-7000-8000-000000000000'"
const REFUSED: Readonly<Record<Exclude<Kind, 'owner'>, readonly string[]>> = {
  producer: [
    'select longshore.settle_and_claim(1, $${}$$, $${}$$, null, null, 1)',
    'select longshore.claim(1, 1)',
    `select longshore.complete(1, ${ID}, 1, null)`,
    "select longshore.register_tasks('[]')",
    "select longshore.set_limits('task', 5, null)",
    'update longshore.limits set capacity = 5',
    'select payload from longshore.jobs',
    'select id from longshore.jobs',
    'select result from longshore.finished_jobs',
    'select message from longshore.job_logs',
    'select job_id from longshore.awaited',
    'delete from longshore.jobs',
    'insert into longshore.jobs select * from longshore.jobs',
    'select longshore.forget_history()',
    'select longshore.rescue(1000000, 1000)',
    "select longshore.lead('me', 1000, 2)",
  ],
  worker: [
    "select longshore.enqueue('task')",
    `select longshore.cancel(array[${ID}]::uuid[])`,
    `select longshore.read_jobs(array[${ID}]::uuid[], false)`,
    `select longshore.read_logs(${ID}, 0, 0, 10)`,
    'select payload from longshore.jobs',
    'select result from longshore.finished_jobs',
    'update longshore.jobs set state = state',
    'delete from longshore.jobs',
    'update longshore.limits set capacity = 5',
    "update longshore.settings set property_keys = '{}'",
    "select longshore.forget_days('finished_jobs', '2000-01-01', 10)",
    "select longshore.relay_read('me', '{}', '{}', '{}', 0, 1, '{}', '{}')",
    'delete from longshore.outbox',
  ],
  relay: [
    "select longshore.enqueue('task')",
    'select longshore.settle_and_claim(1, $${}$$, $${}$$, null, null, 1)',
    `select longshore.cancel(array[${ID}]::uuid[])`,
    `select longshore.read_jobs(array[${ID}]::uuid[], false)`,
    'select payload from longshore.jobs',
    'select result from longshore.finished_jobs',
    'select data from longshore.job_logs',
    'update longshore.jobs set state = state',
    'delete from longshore.outbox',
    'update longshore.settings set retention_days = 1',
    "select longshore.forget_days('finished_jobs', '2000-01-01', 10)",
    "select longshore.register_tasks('[]')",
  ],
  reader: [
    "select longshore.enqueue('task')",
    `select longshore.cancel(array[${ID}]::uuid[])`,
    `select longshore.read_jobs(array[${ID}]::uuid[], false)`,
    "select longshore.lead('me', 1000, 2)",
    'select longshore.drain_worker(1, true)',
    'select payload from longshore.jobs',
    'select error from longshore.finished_jobs',
    'select message from longshore.job_logs',
    'update longshore.settings set retention_days = 1',
    'update longshore.workers set listening = true',
    'delete from longshore.awaited',
    'select longshore.await_jobs($$me$$, $${}$$, $${}$$, false)',
  ],
}
/** Nobody but the owner changes the schema, or acts in the owner's name. */
const REFUSED_TO_ALL = [
  'create table longshore.mine (id int)',
  'create function longshore.mine() returns int language sql as $$ select 1 $$',
  'create or replace view longshore.blocked as select 1',
  'drop table longshore.finished_jobs_default',
  'alter table longshore.jobs disable trigger all',
  'truncate longshore.jobs',
  "select nextval('longshore.lease_tokens')",
  "insert into longshore.migrations (version, name) values (9999, 'x')",
]

describe('each role is refused what is not its own', () => {
  for (const [kind, statements] of Object.entries(REFUSED)) {
    it(`${kind}`, async () => {
      const setRole = `set role "${roles.prefix}_owner"`
      for (const statement of [...statements, ...REFUSED_TO_ALL, setRole]) {
        const told = await as(kind as Kind, statement).then(
          () => 'done',
          (error: { code: string }) => error.code,
        )
        expect([statement, told]).toEqual([statement, '42501'])
      }
    })
  }

  it('lets the owner role do what administrators do', async () => {
    await as('owner', 'update longshore.settings set retention_days = 8')
    await as('owner', 'create table longshore.mine (id int); drop table longshore.mine')
  })

  it('lets readers look at everything but what jobs carry', async () => {
    for (const view of ['job_status', 'group_status', 'blocked', 'worker_status'])
      await as('reader', `select * from longshore.${view}`)
    const producer = createProducer({ postgres: asUser(database.url, `${roles.prefix}_user_producer`) })
    const step = defineTask<string>({ name: 'looked at' })
    const [ended] = await producer.enqueueMany(step, ['a', 'b'], { workflow: 'w' })
    if (ended) await producer.cancel(ended)
    const group = producer.group({ name: 'g' })
    group.add(step, 'c', { after: group.add(step, 'd') })
    await group.submit()
    await producer.close()
    const reader = asUser(database.url, `${roles.prefix}_user_reader`)
    const look = async (...command: string[]) => {
      const { code, stderr } = await spawnCli([...command, '--database-url', reader]).ended
      expect([command, code, stderr]).toEqual([command, 0, ''])
    }
    await Promise.all([look('top', '--once'), look('workflows'), look('doctor')])
  })

  it('[X6] says what is left to an administrator, when it is run and to the doctor', async () => {
    expect(notes).toEqual([
      `an administrator should grant pg_signal_backend and pg_read_all_stats to ${roles.prefix}_owner`,
    ])
    const see = () => doctor({ postgres: asUser(database.url, `${roles.prefix}_user_reader`), looks: 1 })
    const lacks = expect.stringMatching(
      `^${roles.prefix}_owner lacks .* pg_signal_backend to ${roles.prefix}_owner$`,
    )
    expect((await see()).warnings).toContainEqual(lacks)
    await roles.admin(`grant pg_read_all_stats, pg_signal_backend to "${roles.prefix}_owner"`)
    expect((await see()).warnings).not.toContainEqual(lacks)
    await roles.admin(`revoke pg_read_all_stats, pg_signal_backend from "${roles.prefix}_owner"`)
  })

  it('[X6] lets the doctor of a reader tell of a transaction that another user has open', async () => {
    const reader = `${roles.prefix}_user_reader`
    const see = async () =>
      (
        await doctor({ postgres: asUser(database.url, reader), looks: 1, maxTransactionAge: 1 })
      ).warnings.filter(warning => warning.includes('a transaction open since'))
    // An administrator's part.
    await roles.admin(`grant pg_read_all_stats to "${roles.prefix}_owner"`)
    const holder = await database.connect()
    await holder.query('begin isolation level repeatable read; select')
    expect(await see()).toContainEqual(expect.stringMatching(`^somebody whom ${reader} is not shown `))
    await holder.query('commit')
    const mine = await database.connect(asUser(database.url, reader))
    await mine.query('begin isolation level repeatable read; select')
    expect(await see()).toContainEqual(expect.stringMatching(`^connection ${mine.backendPid} `))
    expect((await see()).join()).not.toContain('is not shown')
    await mine.query('commit')
  })
})

describe('what is missing', () => {
  const task = defineTask({ name: 'a task' })
  const denied = (role: string) => ({
    code: 'PERMISSION_DENIED',
    message: expect.stringMatching(new RegExp(`"longshore_${role}".*longshore migrate --roles`)),
  })
  const url = (kind: Kind) => asUser(database.url, `${roles.prefix}_user_${kind}`)

  it('is named with the role to grant', async () => {
    const nobody = asUser(database.url, await roles.user('nobody'))
    const producer = createProducer({ postgres: nobody })
    await expect(producer.enqueue(task, {})).rejects.toMatchObject(denied('producer'))
    await producer.close()
    const reading = createProducer({ postgres: url('reader') })
    await expect(reading.enqueue(task, {})).rejects.toMatchObject(denied('producer'))
    await reading.close()
    const worker = createWorker({ postgres: url('producer'), handlers: [task.handle(() => undefined)] })
    await expect(worker.start()).rejects.toMatchObject(denied('worker'))
    await worker.stop()
    const relay = createRelay({ postgres: url('producer') })
    await expect(relay.start()).rejects.toMatchObject(denied('relay'))
    await relay.stop()
  })

  it('is named with the one role that may, by whatever looks or changes', async () => {
    const reading = createProducer({ postgres: url('reader') })
    await expect(reading.enqueueMany(task, [{}, {}])).rejects.toMatchObject(denied('producer'))
    await reading.close()
    for (const [command, kind, role] of [
      [['doctor'], 'producer', 'reader'],
      [['top', '--once'], 'worker', 'reader'],
      [['groups'], 'producer', 'reader'],
      [['properties', 'gpu'], 'reader', 'owner'],
      [['queues', 'default', '--schedule-mode', 'fanout'], 'relay', 'owner'],
      [['drain', 'somebody'], 'reader', 'worker'],
    ] as const) {
      const { code, stderr } = await spawnCli([...command, '--database-url', url(kind)]).ended
      expect([command, code, stderr]).toEqual([
        command,
        1,
        expect.stringMatching(`^longshore: [^\n]* the role that may, "longshore_${role}" \\(`),
      ])
    }
  })

  it('is not missed by who only does what it may', async () => {
    const worker = createWorker({
      postgres: url('worker'),
      handlers: [task.handle(() => undefined)],
      name: 'me',
    })
    await worker.start()
    const mayDo = async (kind: Kind, ...command: string[]) => {
      const { code, stderr } = await spawnCli([...command, '--database-url', url(kind)]).ended
      expect([command, code, stderr]).toEqual([command, 0, ''])
    }
    await Promise.all([
      mayDo('worker', 'drain', 'me', '--wait'),
      mayDo('producer', 'workflows', 'halted', '--resume'),
    ])
    await worker.stop()
  })

  it('leaves limits to those who run tasks: a producer makes its own known and changes none', async () => {
    const limited = (concurrency: number) => defineTask({ name: 'limited', concurrency })
    const introduce = async (concurrency: number, kind: Kind) => {
      const producer = createProducer({ postgres: url(kind), tasks: [limited(concurrency)] })
      await producer.enqueue(limited(concurrency), {})
      await producer.close()
      const [row] = await database.rows("select capacity from longshore.limits where task = 'limited'")
      return row?.['capacity']
    }
    expect(await introduce(3, 'producer')).toBe(3)
    expect(await introduce(9, 'producer')).toBe(3)
    expect(await introduce(5, 'owner')).toBe(5)
  })
})
