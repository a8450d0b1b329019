/**
 * Behind PgBouncer in transaction mode: a statement may run on any connection, prepared statements are not there, and
 * notifications do not come through. Jobs run all the same, found by polling; with a way past the pooler for listening, at once.
 */
import pg from 'pg'
import { pino } from 'pino'
import { describe, expect, inject, it } from 'vitest'
import { createProducer, createWorker, defineTask } from '../../src/index.ts'
import { POOLED } from '../../src/postgres/listener.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { makeOdd } from '../support/odd-server.ts'
import { usePooler } from '../support/pgbouncer.ts'
import { counter, eventually, gate } from '../support/signals.ts'

const SERVER_CONNECTIONS = 4
/** What is found by polling takes its time. */
const LONG_MS = 40_000
const pooler = usePooler(SERVER_CONNECTIONS)
const database = useDatabase()
const deployment = useDeployment(database, { redis: inject('redisUrl'), bringsRelays: true })

const plain = defineTask<number>({ name: 'plain' })
const limited = defineTask<number>({
  name: 'limited',
  concurrency: 2,
  retry: { maxAttempts: 3, backoff: { type: 'fixed', delay: 1 } },
})
const written = defineTask<number>({ name: 'written' })
const long = defineTask<number>({ name: 'long' })

/** Counts how often somebody is told of a pooler. */
function listening() {
  const told = counter()
  const write = (line: string) => void (JSON.parse(line).msg === POOLED && told.add())
  return { told, logger: pino({ level: 'info' }, { write }) }
}

/** Clients that listen to nothing but what comes through the pooler. */
const throughPooler = () => ({ postgres: pooler.through(database.url) })

it('[X7] producer, relay and workers do their work through few connections, and leases live on', async () => {
  await database.rows('create table effects (job uuid)')
  await deployment.relay(throughPooler())
  const begun = gate()
  const mayEnd = gate()
  const handlers = [
    plain.handle(() => undefined),
    limited.handle(({ attempt, payload }) => {
      if (payload % 5 === 0 && attempt === 1) throw new Error('now and then')
    }),
    written.handle((job, ctx) =>
      ctx.complete(async tx => {
        await tx.query('insert into effects values ($1)', [job.id])
      }),
    ),
    long.handle(async () => {
      begun.open()
      await mayEnd.opened
    }),
  ]
  // Each has a connection for its heartbeat and two for jobs: more than the pooler has.
  for (const lease of ['3s', '15s'] as const) await deployment.worker({ ...throughPooler(), handlers, lease })
  const producer = deployment.producer({ ...throughPooler(), tasks: [plain, limited, written, long] })
  const slow = await producer.enqueue(long, 1)
  await begun.opened
  const numbers = Array.from({ length: 200 }, (_, n) => n)
  const group = producer.group()
  const first = group.add(plain, 1)
  for (const n of numbers.slice(0, 20)) group.add(limited, n, { after: first })
  await group.submit()
  await Promise.all(numbers.map(n => producer.enqueue(plain, n)))
  const completed = await producer.enqueueMany(written, numbers)
  await producer.enqueueMany(limited, numbers.slice(0, 10), { workflow: 'one after another' })
  expect(await producer.waitForGroup(group)).toMatchObject({ state: 'succeeded' })
  await eventually(
    'all but the long one have ended',
    async () => {
      const [row] = await database.rows<{ left: number }>('select count(*)::int as left from longshore.jobs')
      return row?.left === 1
    },
    LONG_MS,
  )
  expect(await database.rows('select distinct job from effects')).toHaveLength(completed.length)

  const [servers] = await database.rows<{ count: number }>(
    "select count(*)::int as count from pg_stat_activity where datname = current_database() and application_name = 'longshore'",
  )
  expect(servers?.count).toBeLessThanOrEqual(SERVER_CONNECTIONS)
  const until = async () => {
    const rows = await database.rows<{ at: Date }>('select max(expires_at) as at from longshore.workers')
    return rows[0]?.at.getTime() ?? 0
  }
  const before = await until()
  await eventually('another beat has moved the lease on', async () => (await until()) > before)
  expect(await producer.cancel(slow)).toBe('cancelling')
  mayEnd.open()
  expect(await producer.waitFor(slow)).toMatchObject({ state: 'cancelled', attempts: 1 })
})

it('[X7] whoever listens through the pooler is told that notifications may not come, and of the way out', async () => {
  const { told, logger } = listening()
  const producer = createProducer({ ...throughPooler(), logger })
  const job = await producer.enqueue(plain, 1)
  const worker = createWorker({
    ...throughPooler(),
    redis: '',
    logger,
    handlers: [plain.handle(() => undefined)],
  })
  try {
    await worker.start()
    await producer.waitFor(job)
    await told.reached(2)
  } finally {
    await worker.stop()
    await producer.close()
  }
})

it('[X7] [W5] with a way past the pooler bells, cancels and results are heard at once', async () => {
  const { told, logger } = listening()
  const ways = { ...throughPooler(), listen: database.url, logger }
  const producer = createProducer({ ...ways, tasks: [long, plain] })
  const begun = counter()
  const worker = createWorker({
    ...ways,
    redis: '',
    // Neither a poll nor a beat finds anything within the time of this test.
    pollInterval: 3_600_000,
    lease: '1h',
    handlers: [
      long.handle(
        (_, { signal }) =>
          new Promise((_, reject) => {
            begun.add()
            signal.addEventListener('abort', () => reject(signal.reason))
          }),
      ),
    ],
  })
  try {
    await worker.start()
    await eventually('the worker listens', async () => {
      const rows = await database.rows('select from longshore.workers where listening')
      return rows.length === 1
    })
    const job = await producer.enqueue(long, 1)
    const waiting = producer.waitFor(job)
    await begun.reached(1)
    await producer.cancel(job)
    expect(await waiting).toMatchObject({ state: 'cancelled' })
    expect(told.count).toBe(0)
  } finally {
    await worker.stop()
    await producer.close()
  }
})

describe('a database that is set otherwise than most', () => {
  const other = useDatabase()
  const name = new URL(other.url).pathname.slice(1)
  const postgres = () => pooler.through(other.url)
  const task = defineTask<number>({ name: 'odd' })
  /** For connections that the pooler makes from now on. */
  const change = async (what: (admin: pg.Client) => Promise<unknown>) => {
    const admin = new pg.Client(inject('adminUrl'))
    await admin.connect()
    await what(admin)
    await admin.query(
      "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1 and application_name = 'longshore'",
      [name],
    )
    await admin.end()
  }

  it.each([
    "default_transaction_isolation = 'serializable'",
    'statement_timeout = 5000',
    'lock_timeout = 500',
    'idle_in_transaction_session_timeout = 500',
    'search_path = public, pg_catalog',
  ])('[X13] sets nothing, and is refused by the name of the setting: %s', async assignment => {
    const [setting = ''] = assignment.split(' ')
    await change(admin => admin.query(`alter database ${name} set ${assignment}`))
    const producer = createProducer({ postgres: postgres() })
    const handlers = [task.handle(() => undefined)]
    const refusal = {
      code: 'CONFIG_INVALID',
      message: expect.stringMatching(`^${setting} is .*behind a pooler.*alter role \\S+ set ${setting} = `),
    }
    try {
      await expect(producer.enqueue(task, 1)).rejects.toMatchObject(refusal)
      await expect(createWorker({ postgres: postgres(), redis: '', handlers }).start()).rejects.toMatchObject(
        refusal,
      )
    } finally {
      await producer.close()
      await change(admin => admin.query(`alter database ${name} reset ${setting}`))
    }
  })

  it('[X13] where everything else is odd jobs, groups and logs are as usual', async () => {
    await change(admin => makeOdd(admin, name, { isPooled: true }))
    const runAt = new Date('2077-01-02T03:04:05.678Z')
    const producer = createProducer({ postgres: postgres(), tasks: [task] })
    const handler = task.handle((job, ctx) => {
      ctx.log('said', { at: job.createdAt })
      ctx.progress(1 / 3)
    })
    const worker = createWorker({ postgres: postgres(), redis: '', handlers: [handler] })
    try {
      await worker.start()
      const group = producer.group()
      const first = group.add(task, 1)
      const second = group.add(task, 2, { after: first, workflow: 'NULL' })
      await group.submit()
      const later = await producer.enqueue(task, 3, { runAt })
      const { createdAt, finishedAt } = await producer.waitForGroup(group)
      const ended = await producer.waitFor(second)
      expect(ended.createdAt).toEqual(createdAt)
      expect(ended.finishedAt.getTime()).toBeLessThanOrEqual(finishedAt.getTime())
      expect(await producer.getLogs(second)).toMatchObject([
        { at: expect.any(Date), data: { at: createdAt.toISOString() } },
      ])
      expect(await producer.getProgress(second)).toMatchObject({ done: 1 / 3, at: expect.any(Date) })
      expect(await producer.get(later)).toMatchObject({ state: 'scheduled', runAt })
      expect((await producer.explain(later))?.summary).toContain('it is due at 2077-01-02T03:04:05.678Z')
    } finally {
      await worker.stop()
      await producer.close()
    }
  })
})
