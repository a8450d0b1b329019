/** What producers and readers may do in Postgres, tried as logins: two services, `shop` (with two logins) and `bank`. */
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  createProducer,
  createWorker,
  defineTask,
  migrate,
  type Producer,
  type Worker,
} from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { asUser } from '../support/role-kinds.ts'
import { holds } from '../support/role-table.ts'
import { useRoles } from '../support/roles.ts'
import { gate } from '../support/signals.ts'
import { weakened } from '../support/weaken.ts'

const roles = useRoles()
const database = useDatabase({ isEmpty: true })
const clients = new Map<string, pg.Client>()
const producers = new Map<string, Producer>()
const name = (user: string) => `${roles.prefix}_user_${user}`

const client = (user: string) => clients.get(user) as pg.Client
const producer = (user: string) => producers.get(user) as Producer
const rows = async (user: string, text: string, values: unknown[] = []) =>
  (await client(user).query(text, values)).rows as Record<string, unknown>[]
const one = async (user: string, text: string, values: unknown[] = []) =>
  Object.values((await rows(user, text, values))[0] ?? {})[0]

/** The code of what refuses it. */
const refusal = (user: string, text: string, values: unknown[] = []) =>
  rows(user, text, values).then(
    () => 'done',
    (error: { code: string }) => error.code,
  )

beforeAll(async () => {
  await migrate({ postgres: database.url, roles: roles.prefix })
  await roles.user('shop')
  await roles.admin(
    `alter role "${name('shop')}" nologin; grant "${roles.prefix}_producer" to "${name('shop')}"`,
  )
  for (const user of ['web', 'cron']) {
    await roles.user(user)
    await roles.admin(`grant "${name('shop')}" to "${name(user)}"`)
  }
  await roles.user('bank', { has: ['producer'] })
  await roles.user('worker', { has: ['worker'] })
  await roles.user('reader', { has: ['reader'] })
  for (const user of ['web', 'cron', 'bank', 'reader']) {
    const made = new pg.Client(asUser(database.url, name(user)))
    await made.connect()
    clients.set(user, made)
    if (user !== 'reader') producers.set(user, createProducer({ postgres: asUser(database.url, name(user)) }))
  }
})
afterAll(async () => {
  for (const made of clients.values()) await made.end()
  for (const made of producers.values()) await made.close()
})

const held = defineTask<string>({ name: 'held', concurrency: 1, retry: { maxAttempts: 1 } })

/** A worker that runs one job of `held` until the test lets it go. */
async function holding(enqueuedBy: string): Promise<{ id: string; end: () => Promise<void> }> {
  const [started, letGo] = [gate(), gate()]
  const worker: Worker = createWorker({
    postgres: asUser(database.url, name('worker')),
    handlers: [
      held.handle(async () => {
        started.open()
        await letGo.opened
      }),
    ],
  })
  await worker.start()
  const { id } = await producer(enqueuedBy).enqueue(held, 'secret')
  await started.opened
  return {
    id,
    async end() {
      letGo.open()
      await worker.stop()
    },
  }
}

holds(
  'Postgres',
  'producer',
  'enqueue, in its own transactions too, and read, change, cancel and wait for its own jobs and groups',
  async () => {
    const task = defineTask<string>({ name: 'own' })
    const shop = producer('web')
    const job = await shop.enqueue(task, 'a', { delay: '1h' })
    expect(await shop.get(job)).toMatchObject({ payload: 'a' })
    expect(await shop.change(job, { priority: 3 })).toBe('changed')
    expect(await shop.explain(job)).toMatchObject({ id: job.id })
    expect(await shop.cancel(job)).toBe('cancelled')
    expect(await shop.waitFor(job)).toMatchObject({ state: 'cancelled' })
    const build = shop.group({ name: 'own' })
    build.add(task, 'b', { delay: '1h' })
    const group = await build.submit()
    expect(await shop.getGroup(group)).toMatchObject({ name: 'own' })
    const events: unknown[] = []
    const stop = await shop.watchGroups(event => void events.push(event))
    expect(await shop.cancelGroup(group)).toBe('cancelled')
    expect(await shop.waitForGroup(group)).toMatchObject({ state: 'cancelled' })
    await expect.poll(() => events).toEqual([{ id: group.id, event: 'cancelled' }])
    stop()
  },
)

holds('Postgres', 'producer', 'do the same with what other logins of its service have enqueued', async () => {
  const task = defineTask<string>({ name: 'shared' })
  const job = await producer('web').enqueue(task, 'a', { delay: '1h' })
  expect(await producer('cron').get(job)).toMatchObject({ payload: 'a' })
  // A login that acts as its service.
  const id = await client('cron')
    .query(`set role "${name('shop')}"`)
    .then(() => one('cron', "select longshore.enqueue('shared', '\"b\"', '{\"delayMs\": 100000}')"))
  await client('cron').query('reset role')
  expect(await producer('web').get(String(id))).toMatchObject({ payload: 'b' })
  expect(await one('cron', 'select answer from longshore.cancel($1)', [[job.id]])).toBe('cancelled')
  expect(await producer('cron').cancel(String(id))).toBe('cancelled')
})

holds(
  'Postgres',
  'producer',
  'read payloads, results, errors, logs or progress of jobs that another service has enqueued',
  async () => {
    const task = defineTask<string>({ name: 'foreign' })
    const job = await producer('web').enqueue(task, 'secret', { delay: '1h' })
    const ended = await producer('web').enqueue(task, 'secret', { delay: '1h' })
    await producer('web').cancel(ended)
    for (const { id } of [job, ended]) {
      const day = "(now() at time zone 'utc')::date"
      await database.rows(
        `insert into longshore.job_logs values ($1, 1, now(), 1, ${day}, 1, 'info', 'secret', null)`,
        [id],
      )
      await database.rows(`insert into longshore.job_progress values ($1, 1, now(), 1, 2, ${day}, 1)`, [id])
      expect(await producer('bank').get(id)).toBeUndefined()
      expect(await producer('bank').getLogs(id)).toEqual([])
      expect(await rows('bank', 'select * from longshore.read_last_logs($1, 9)', [id])).toEqual([])
      expect(await producer('bank').getProgress(id)).toBeUndefined()
      expect(await rows('bank', 'select * from longshore.read_jobs($1, true)', [[id]])).toEqual([])
      // It is there for those whose it is.
      expect(await producer('cron').getLogs(id)).toMatchObject([{ message: 'secret' }])
      expect(await producer('cron').getProgress(id)).toMatchObject({ done: 1, total: 2 })
    }
    for (const table of [
      'jobs',
      'finished_jobs',
      'job_logs',
      'job_status',
      'group_status',
      'blocked',
      'outbox',
      'edges',
    ])
      expect([table, await refusal('bank', `select from longshore.${table}`)]).toEqual([table, '42501'])
  },
)

holds(
  'Postgres',
  'producer',
  'change or cancel jobs that another service has enqueued, or add to its groups and read or cancel those',
  async () => {
    const task = defineTask<string>({ name: 'guarded' })
    const job = await producer('web').enqueue(task, 'secret', { delay: '1h' })
    expect(await producer('bank').cancel(job)).toBe('unknown')
    expect(await producer('bank').change(job, { priority: 9 })).toBe('unknown')
    const build = producer('web').group()
    const first = build.add(task, 'a', { delay: '1h' })
    const group = await build.submit()
    expect(await producer('bank').getGroup(group)).toBeUndefined()
    expect(await producer('bank').cancelGroup(group)).toBe('unknown')
    const more = producer('bank').addToGroup(group)
    more.add(task, 'b')
    await expect(more.submit()).rejects.toMatchObject({ code: 'GROUP_NOT_FOUND' })
    const same = producer('bank').group({ id: group.id })
    same.add(task, 'b')
    await expect(same.submit()).rejects.toMatchObject({
      code: 'GROUP_INVALID',
      message: expect.stringContaining('another user'),
    })
    // What runs after another's job is told the same whether that job exists or not.
    const told = async (parent: string) => {
      const own = producer('bank').group()
      own.add(task, 'first')
      const made = await own.submit()
      const added = producer('bank').addToGroup(made)
      added.add(task, 'b', { after: parent })
      return added.submit().then(
        () => 'done',
        (error: Error) => error.message.replace(parent, '<id>'),
      )
    }
    expect(await told(first.id)).toBe(await told('0198c0de-0000-7000-8000-000000000000'))
    expect(await producer('web').get(job)).toMatchObject({ state: 'scheduled', priority: 0 })
    expect(await producer('web').getGroup(group)).toMatchObject({ state: 'queued', counts: { scheduled: 1 } })
    // An id that another service has taken.
    await expect(producer('bank').enqueue(task, 'x', { id: job.id })).rejects.toMatchObject({
      code: 'JOB_INVALID',
      message: expect.stringContaining('another user'),
    })
    expect(
      await refusal('bank', "select longshore.enqueue('guarded', '{}', jsonb_build_object('id', $1::text))", [
        job.id,
      ]),
    ).toBe('LS010')
  },
)

holds(
  'Postgres',
  'producer',
  'learn ids of others: from `explain` of a full limit or a workflow, from watching groups, or by waiting',
  async () => {
    const { id, end } = await holding('web')
    try {
      const waits = await producer('bank').enqueue(held, 'own')
      const explained = await producer('bank').explain(waits)
      expect(explained).toMatchObject({ reasons: [{ kind: 'limit', used: 1, holders: [] }] })
      expect(explained?.summary).toContain('by jobs of other users')
      expect(JSON.stringify(explained)).not.toContain(id)
      expect(
        JSON.stringify(await producer('web').explain(await producer('cron').enqueue(held, 'too'))),
      ).toContain(id)
      expect(await producer('bank').explain(id)).toBeUndefined()
      // Readers may list all jobs, so they are told.
      expect(JSON.stringify(await one('reader', 'select longshore.explain($1)', [waits.id]))).toContain(id)
    } finally {
      await end()
    }

    const step = defineTask<string>({ name: 'step' })
    const head = await producer('web').enqueue(step, 'secret', { workflow: 'shared', delay: '1h' })
    const next = await producer('bank').enqueue(step, 'own', { workflow: 'shared' })
    const turn = await producer('bank').explain(next)
    expect(turn).toMatchObject({ reasons: [{ kind: 'turn', holder: null }, { kind: 'no_worker' }] })
    expect(turn?.summary).toContain('a job of another user has it')
    expect(JSON.stringify(turn)).not.toContain(head.id)

    // Nor does it hear of the end of another's group, or job.
    const heard: string[] = []
    const stop = await producer('bank').watchGroups(event => void heard.push(event.id))
    const groups = []
    for (const user of ['web', 'bank']) {
      const build = producer(user).group()
      build.add(step, 'a', { delay: '1h' })
      groups.push(await build.submit())
      await producer(user).cancelGroup(groups.at(-1) as { id: string })
    }
    await expect.poll(() => heard).toEqual([groups[1]?.id])
    stop()
    await rows('bank', "select longshore.await_jobs('spy', $1, $2, true)", [[head.id], [60_000]])
    expect(await database.rows("select from longshore.awaited where waiter = 'spy'")).toEqual([])
  },
)

holds('Postgres', 'producer', 'let a workflow go on that a job of another service has halted', async () => {
  const step = defineTask<string>({ name: 'halting', retry: { maxAttempts: 1 } })
  const worker = createWorker({
    postgres: asUser(database.url, name('worker')),
    handlers: [step.handle(() => Promise.reject(new Error('secret')))],
  })
  await worker.start()
  const first = await producer('web').enqueue(step, 'a', { workflow: 'halts', onWorkflowFailure: 'halt' })
  await producer('web').waitFor(first)
  await worker.stop()
  const next = await producer('bank').enqueue(step, 'b', { workflow: 'halts' })
  const told = await producer('bank').explain(next)
  expect(told).toMatchObject({ reasons: [{ kind: 'halted', haltedBy: null }, { kind: 'no_worker' }] })
  expect(JSON.stringify(told)).not.toMatch(/secret|[0-9a-f-]{36}.*halted by the failure of job/)
  expect(JSON.stringify(told)).not.toContain(first.id)
  expect(await producer('bank').resumeWorkflow('halts')).toBe('not_halted')
  expect(await producer('cron').resumeWorkflow('halts')).toBe('resumed')
})

const TASK = { queue: 'q', tag: 't', maxAttempts: 3, maxRescues: 5, concurrency: 4, concurrencyPerKey: 2 }
const introduce = (user: string, task: object) =>
  rows(user, 'select longshore.register_tasks_if_new($1)', [JSON.stringify([task])])
const known = async (task: string) =>
  (
    await database.rows(
      'select queue, tag, max_attempts, max_rescues, concurrency, concurrency_per_key from longshore.tasks where name = $1',
      [task],
    )
  )[0]

/** Two producers introduce a task at the same time: the first one holds its transaction open. */
const race = async (task: string) => {
  await client('web').query('begin')
  await introduce('web', { name: task, ...TASK })
  const second = introduce('bank', { name: task, ...TASK, queue: 'x', concurrency: 9 })
  await expect
    .poll(() =>
      database.rows("select from pg_stat_activity where usename = $1 and wait_event_type = 'Lock'", [
        name('bank'),
      ]),
    )
    .toHaveLength(1)
  await client('web').query('commit')
  await second
  return known(task)
}

describe('tasks', () => {
  holds('Postgres', 'producer', 'change queue, tag, attempts or limits of a task that is known', async () => {
    await introduce('web', { name: 'known', ...TASK })
    const before = await known('known')
    expect(before).toMatchObject({ queue: 'q', concurrency: 4 })
    for (const change of [
      { queue: 'x' },
      { tag: 'x' },
      { maxAttempts: 9 },
      { maxRescues: 9 },
      { concurrency: 9 },
      { concurrency: null },
    ])
      await introduce('bank', { name: 'known', ...TASK, ...change })
    expect(await known('known')).toEqual(before)
    expect(await refusal('bank', "select longshore.register_tasks('[]')")).toBe('42501')
    expect(await refusal('bank', "update longshore.tasks set queue = 'x'")).toBe('42501')
  })

  it('[X15] the first of two producers that introduce a task at once decides', async () => {
    expect(await race('raced')).toMatchObject({ queue: 'q', concurrency: 4 })
  })
})

holds('Postgres', 'producer', 'skip the checks of `longshore.enqueue` through another function', async () => {
  const shape = { queue: 'q', task: 't', tag: 't', constraintTag: 'c:', maxAttempts: 3, priority: 0 }
  const enqueue = (change: object, payload = '{}') =>
    refusal('bank', 'select longshore.enqueue_jobs($1, array[gen_random_uuid()], null, $2, false)', [
      JSON.stringify([{ ...shape, ...change }]),
      payload,
    ])
  expect(await enqueue({})).toBe('done')
  for (const field of ['queue', 'task', 'tag', 'concurrencyKey'])
    expect([field, await enqueue({ [field]: 'a\u001b[2J' })]).toEqual([field, '22023'])
  for (const [change, code] of [
    [{ queue: '' }, '23514'],
    [{ queue: 'q'.repeat(101) }, '23514'],
    [{ task: 't'.repeat(201) }, '23514'],
    [{ priority: 2048 }, '22023'],
    [{ priority: -1 }, '22023'],
    [{ runAt: -1 }, '22023'],
    [{ delayMs: 2 ** 43 }, '22023'],
    [{ maxAttempts: 0 }, '23514'],
    [{ constraintTag: 'c:nothing=1' }, 'LS001'],
  ] as const)
    expect([change, await enqueue(change)]).toEqual([change, code])
  const large = `"${'a'.repeat(4 * 1024 * 1024)}"`
  expect(await enqueue({}, large)).toBe('22023')
  const alike = (queue: string, payload = '{}') =>
    refusal(
      'bank',
      "select longshore.enqueue_plain($1, 't', 't', 0, 3, array[gen_random_uuid()], $2, false)",
      [queue, payload],
    )
  expect(await alike('q')).toBe('done')
  expect(await alike('q\u001b[2J')).toBe('22023')
  expect(await alike('q', large)).toBe('22023')
  // Groups, and how much a job waits for, are given through add_to_group only.
  for (const call of [
    "select longshore.insert_jobs('[]', '{}', null, '', false)",
    'select longshore.insert_linked(null, null, null, null, null, null, null, null, null, null, null, null, false, null)',
    "select longshore.find_lane('q', 't', 't', 'c:')",
    "select longshore.finish_job(null, 'cancelled')",
  ])
    expect([call, await refusal('bank', call)]).toEqual([call, '42501'])
  expect(
    await refusal(
      'bank',
      "select longshore.enqueue_jobs('[]', '{}', null, '', false, p_group => gen_random_uuid())",
    ),
  ).toBe('42883')
  const group = (text: string) =>
    refusal(
      'bank',
      "select longshore.add_to_group(gen_random_uuid(), $1, true, false, $2, array[gen_random_uuid()], null, '{}', $3, '{false}', '{}', '{}', '{}', '{}')",
      [text, JSON.stringify([shape]), [text]],
    )
  expect(await group('fine')).toBe('done')
  expect(await group('a\u001b[2J')).toBe('23514')
})

holds(
  'Postgres',
  'producer',
  'claim, settle, lead, do the upkeep, or change anything but by the functions that it is granted',
  async () => {
    const granted = await rows(
      'bank',
      `select p.proname as name from pg_proc p
       where p.pronamespace = 'longshore'::regnamespace and has_function_privilege(p.oid, 'execute') order by 1`,
    )
    expect(granted.map(row => row['name'])).toEqual([
      ...[
        'add_to_group',
        'add_to_groups',
        'await_jobs',
        'cancel',
        'cancel_group',
        'change',
        'constraint_keys',
      ],
      ...[
        'enqueue',
        'enqueue_jobs',
        'enqueue_plain',
        'explain',
        'forget_awaited',
        'make_lane',
        'need_transaction',
      ],
      ...['priority_of', 'read_groups', 'read_jobs', 'read_last_logs', 'read_logs', 'read_progress'],
      ...['register_tasks_if_new', 'resume_workflow', 'run_at_ms_of', 'run_at_of', 'score'],
    ])
    const tables = await rows(
      'bank',
      `select c.relname as name, array(
         select p from unnest('{select,insert,update,delete,truncate,references,trigger}'::text[]) as p
         where has_table_privilege(c.oid, p) or (p in ('select', 'insert', 'update', 'references') and has_any_column_privilege(c.oid, p))
       )::text as may
       from pg_class c where c.relnamespace = 'longshore'::regnamespace and c.relkind in ('r', 'p', 'v') order by 1`,
    )
    expect(tables.filter(row => row['may'] !== '{}')).toEqual(
      ['functions', 'migrations', 'release', 'roles', 'settings'].map(name => ({ name, may: '{select}' })),
    )
  },
)

holds(
  'Postgres',
  'reader',
  'look at the views and at every table, but for what jobs carry: `longshore top`, `groups`, `workflows`, `doctor`, `explain`',
  async () => {
    const job = await producer('web').enqueue(held, 'secret', { delay: '1h' })
    for (const view of [
      'job_status',
      'group_status',
      'blocked',
      'worker_status',
      'tasks',
      'groups',
      'limits',
    ])
      await rows('reader', `select * from longshore.${view}`)
    expect(await rows('reader', 'select id, state from longshore.jobs where id = $1', [job.id])).toHaveLength(
      1,
    )
    expect(await one('reader', 'select longshore.explain($1)', [job.id])).toMatchObject({ id: job.id })
  },
)

holds(
  'Postgres',
  'reader',
  'read payloads, results, errors beyond their messages, or logs; change anything',
  async () => {
    for (const call of [
      'select payload from longshore.jobs',
      'select error from longshore.jobs',
      'select result from longshore.finished_jobs',
      'select error from longshore.finished_jobs',
      'select message from longshore.job_logs',
      "select longshore.read_jobs('{}', false)",
      'select longshore.read_logs(gen_random_uuid(), 0, 0, 1)',
      "select longshore.enqueue('t')",
      "select longshore.cancel('{}')",
      'select longshore.cancel_group(gen_random_uuid())',
      "select longshore.await_jobs('me', '{}', '{}', false)",
      'update longshore.settings set retention_days = 1',
      'update longshore.workers set listening = true',
      'delete from longshore.awaited',
      'select from longshore.leader for update',
    ])
      expect([call, await refusal('reader', call)]).toEqual([call, '42501'])
  },
)

describe('without its guard', () => {
  const step = defineTask<string>({ name: 'given away' })
  let job: { id: string }
  let group: { id: string }
  beforeAll(async () => {
    await database.rows(
      "create function longshore.is_anyones(oid, oid) returns boolean language sql as 'select true'",
    )
    job = await producer('web').enqueue(step, 'secret', { delay: '1h' })
    const build = producer('web').group()
    build.add(step, 'a', { delay: '1h' })
    group = await build.submit()
    await database.rows("insert into longshore.workflows (key, halted_by) values ('stopped', $1)", [job.id])
  })

  /** What bank gets of shop's, by function. The last ones end them. */
  const given: readonly [name: string, attack: () => Promise<unknown>][] = [
    ['read_jobs', () => producer('bank').get(job.id)],
    ['explain', () => producer('bank').explain(job.id)],
    ['read_groups', () => producer('bank').getGroup(group.id)],
    [
      'is_own_job',
      async () =>
        (await one('bank', 'select has_ended from longshore.read_progress($1)', [job.id])) === false,
    ],
    ['change', async () => (await producer('bank').change(job.id, { priority: 1 })) === 'changed'],
    [
      'add_to_group',
      async () => {
        const more = producer('bank').addToGroup(group.id)
        more.add(step, 'b', { delay: '1h' })
        return more.submit().catch(() => undefined)
      },
    ],
    [
      'await_jobs',
      async () => {
        await rows('bank', "select longshore.await_jobs('spy', $1, $2, false)", [[job.id], [60_000]])
        return (
          (await database.rows("delete from longshore.awaited where waiter = 'spy' returning 1")).length > 0
        )
      },
    ],
    [
      'insert_jobs',
      async () =>
        (await refusal(
          'bank',
          "select longshore.enqueue('given away', '{}', jsonb_build_object('id', $1::text))",
          [job.id],
        )) === 'done',
    ],
    ['cancel', async () => (await producer('bank').cancel(job.id)) === 'cancelled'],
    ['explain_end', () => producer('bank').explain(job.id)],
    ['resume_workflow', async () => (await producer('bank').resumeWorkflow('stopped')) === 'resumed'],
    ['cancel_group', async () => (await producer('bank').cancelGroup(group.id)) === 'cancelled'],
  ]
  it.each(given)('[X15] %s gives away what is another’s', async (name, attack) => {
    expect(await attack()).toBeFalsy()
    const gone = { name, call: 'is_own', other: 'is_anyones' }
    expect(await weakened(database, [gone], attack)).toBeTruthy()
  })

  it('[X15] the last of two producers that introduce a task at once decides', async () => {
    const gone = { name: 'register_tasks_if_new', guard: 'one-at-a-time' }
    expect(await weakened(database, [gone], () => race('raced without'))).toMatchObject({ queue: 'x' })
  })
})
