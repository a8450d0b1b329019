/** `{ tx }`: what is done in a transaction of the caller, and what is refused because it would not be. */
import { setImmediate } from 'node:timers/promises'
import pg from 'pg'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  createProducer,
  defineTask,
  type InTransaction,
  newJobId,
  type Producer,
  type Queryable,
} from '../../src/index.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { gate } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const note = defineTask({ name: 'note', payload: z.object({ n: z.number() }) })
const keyed = defineTask<number>({ name: 'keyed', concurrencyPerKey: 2 })

const count = async () =>
  (
    await database.rows<{ n: number }>(
      'select (select count(*) from longshore.jobs)::int + (select count(*) from longshore.groups)::int as n',
    )
  )[0]?.n

const begun = async (isolation = 'read committed') => {
  const tx = await database.connect()
  await tx.query(`begin isolation level ${isolation}`)
  return tx
}

/** What looks like a client, and cannot tell whether it is in a transaction. */
const mute = (client: { query: pg.Client['query'] }): Queryable => ({
  query: (text, values) => client.query(text, values),
})

type Call = (producer: Producer, tx: InTransaction['tx']) => Promise<unknown>

/** Every way of enqueueing. */
const ENQUEUES: Record<string, Call> = {
  enqueue: (producer, tx) => producer.enqueue(note, { n: 1 }, { tx }),
  'enqueue with an id': (producer, tx) => producer.enqueue(note, { n: 1 }, { tx, id: newJobId() }),
  'enqueue with constraints and a key': (producer, tx) =>
    producer.enqueue(keyed, 1, { tx, concurrencyKey: newJobId(), delay: '1h' }),
  'enqueue into a workflow': (producer, tx) => producer.enqueue(note, { n: 1 }, { tx, workflow: 'w' }),
  enqueueMany: (producer, tx) => producer.enqueueMany(note, [{ n: 1 }, { n: 2 }], { tx }),
  submit: (producer, tx) => {
    const group = producer.group()
    const first = group.add(note, { n: 1 })
    group.add(note, { n: 2 }, { after: first })
    return group.submit({ tx })
  },
}

const CASES = Object.entries(ENQUEUES)

describe('a call that nobody waited for', () => {
  it.each(CASES)('[X34] is part of the transaction that is committed after it: %s', async (_, call) => {
    for (const isWarm of [false, true]) {
      for (const adapt of [(client: TestClient): Queryable => client, mute]) {
        const producer = deployment.producer()
        if (isWarm) await call(producer, undefined)
        const before = await count()
        const undone = await begun()
        const first = call(producer, adapt(undone))
        await undone.query('rollback')
        await first.catch(() => undefined)
        expect(await count()).toBe(before)

        const tx = await begun()
        const second = call(producer, adapt(tx))
        await tx.query('commit')
        // At the commit, not at some moment after it.
        expect(await count()).toBeGreaterThan(before ?? 0)
        await second
      }
    }
  })

  it('[X34] is whole, however many jobs it has', async () => {
    const producer = deployment.producer()
    const tx = await begun()
    const payloads = Array.from({ length: 2500 }, (_, n) => ({ n }))
    producer.enqueueMany(note, payloads, { tx })
    await tx.query('commit')
    expect(await count()).toBe(2500)

    await tx.query('begin')
    producer.enqueueMany(note, payloads, { tx, workflow: 'long' })
    await tx.query('commit')
    const ordered = await database.rows<{ n: number }>(
      "select (payload ->> 'n')::int as n from longshore.jobs where workflow is not null order by workflow_seq",
    )
    expect(ordered).toEqual(payloads)

    await tx.query('begin')
    const group = producer.group({ id: newJobId() })
    let last = group.add(note, { n: 0 })
    for (const { n } of payloads) last = group.add(note, { n }, { after: last })
    const submitted = group.submit({ tx })
    await tx.query('commit')
    expect(await count()).toBe(2500 + 2500 + 2502)
    expect(await submitted).toMatchObject({ isNew: true })

    await tx.query('begin')
    const again = producer.group({ id: group.id })
    for (const { n } of payloads) again.add(note, { n })
    expect(await again.submit({ tx })).toMatchObject({ isNew: false })
    await tx.query('commit')
    expect(await count()).toBe(2500 + 2500 + 2502)
  })

  it('[X34] is part of the transaction: cancel, change, cancelGroup, resumeWorkflow', async () => {
    const warm = deployment.producer()
    const { id } = await warm.enqueue(note, { n: 1 })
    const group = warm.group()
    const grouped = group.add(note, { n: 1 })
    await group.submit()
    const verbs: Call[] = [
      (producer, tx) => producer.change(id, { priority: 7, tx }),
      (producer, tx) => producer.cancel(id, { tx }),
      (producer, tx) => producer.cancelGroup(group, { tx }),
      (producer, tx) => producer.resumeWorkflow('w', { tx }),
    ]
    const run = async (end: string) => {
      for (const verb of verbs) {
        const tx = await begun()
        const producer = deployment.producer()
        const called = verb(producer, tx)
        await tx.query(end)
        await called
      }
    }
    await run('rollback')
    expect(await warm.get(id)).toMatchObject({ state: 'ready', priority: 0 })
    expect(await warm.get(grouped)).toMatchObject({ state: 'ready' })
    await run('commit')
    expect(await warm.get(id)).toMatchObject({ state: 'cancelled', priority: 7 })
    expect(await warm.get(grouped)).toMatchObject({ state: 'cancelled' })
  })

  it('[X34] tells the process that it was refused, since nobody else hears it', async () => {
    const others = process.listeners('unhandledRejection')
    process.removeAllListeners('unhandledRejection')
    const told = gate<unknown>()
    process.once('unhandledRejection', told.open)
    try {
      const producer = deployment.producer()
      const tx = await begun()
      await database.rows("alter table longshore.jobs add constraint no_13 check (payload ->> 'n' <> '13')")
      producer.enqueue(note, { n: 13 }, { tx })
      const { command } = await tx.query('commit')
      expect(command).toBe('ROLLBACK')
      expect(await told.opened).toMatchObject({ message: expect.stringContaining('no_13') })
    } finally {
      for (const other of others) process.on('unhandledRejection', other)
      await database.rows('alter table longshore.jobs drop constraint no_13')
    }
  })
})

describe('a task whose schema answers later', () => {
  const slow = defineTask({ name: 'slow', payload: z.number().refine(async n => n > 0) })
  const verbs: [string, Call][] = [
    ['enqueue', (producer, tx) => producer.enqueue(slow, 1, { tx })],
    ['enqueueMany', (producer, tx) => producer.enqueueMany(slow, [1, 2], { tx })],
    [
      'submit',
      (producer, tx) => {
        const group = producer.group()
        group.add(slow, 1)
        group.add(note, { n: 1 })
        return group.submit({ tx })
      },
    ],
  ]

  it.each(verbs)(
    '[X34] is part of the transaction if it is waited for, and refused if not: %s',
    async (_, call) => {
      const producer = deployment.producer()
      const tx = await begun()
      await Promise.all([call(producer, tx), call(producer, tx)])
      await tx.query('rollback')
      expect(await count()).toBe(0)

      await tx.query('begin')
      const late = call(producer, tx)
      await tx.query('rollback')
      await expect(late).rejects.toMatchObject({
        code: 'TRANSACTION_INVALID',
        message: expect.stringContaining('ended before'),
      })
      expect(await count()).toBe(0)

      await tx.query('begin')
      await call(producer, tx)
      await tx.query('commit')
      expect(await count()).toBeGreaterThan(0)
    },
  )
})

describe('a client that is in no transaction', () => {
  const verbs: [string, Call][] = [
    ...CASES,
    ['cancel', (producer, tx) => producer.cancel(newJobId(), { tx })],
    ['change', (producer, tx) => producer.change(newJobId(), { priority: 1, tx })],
    ['cancelGroup', (producer, tx) => producer.cancelGroup(newJobId(), { tx })],
    ['resumeWorkflow', (producer, tx) => producer.resumeWorkflow('w', { tx })],
    ['enqueueMany of nothing', (producer, tx) => producer.enqueueMany(note, [], { tx })],
  ]
  const refused = { code: 'TRANSACTION_INVALID', message: expect.stringContaining('in no transaction') }

  it.each(verbs)('[X34] is refused, and nothing is made: %s', async (_, call) => {
    const producer = deployment.producer()
    const client = await database.connect()
    await expect(call(producer, client)).rejects.toMatchObject(refused)
    await client.query('begin')
    await client.query('commit')
    await expect(call(producer, client)).rejects.toMatchObject(refused)
    expect(await count()).toBe(0)
  })

  it.each(CASES)('[X34] is refused, also where it cannot tell: %s', async (_, call) => {
    const client = await database.connect()
    const producer = deployment.producer()
    await expect(call(producer, mute(client))).rejects.toMatchObject(refused)
    const pool = new pg.Pool({ connectionString: database.url, max: 2 })
    await expect(call(producer, mute(pool as never))).rejects.toMatchObject(refused)
    await pool.end()
    expect(await count()).toBe(0)
  })

  it('[X34] is told apart from one whose begin or commit has no answer yet', async () => {
    const producer = deployment.producer()
    const client = await database.connect()
    client.query('begin')
    const kept = producer.enqueue(note, { n: 1 }, { tx: client })
    client.query('commit')
    await expect(producer.enqueue(note, { n: 2 }, { tx: client })).rejects.toMatchObject(refused)
    expect(await producer.get((await kept).id)).toMatchObject({ payload: { n: 1 } })
    expect(await count()).toBe(1)
  })

  it('[X34] is refused by its name where its transaction has failed', async () => {
    const producer = deployment.producer()
    const tx = await begun()
    await tx.query('savepoint before')
    await expect(tx.query('select 1 / 0')).rejects.toThrow('division by zero')
    await expect(producer.enqueue(note, { n: 1 }, { tx })).rejects.toMatchObject({
      code: 'TRANSACTION_INVALID',
      message: expect.stringContaining('has failed'),
    })
    await tx.query('rollback to before')
    await producer.enqueue(note, { n: 1 }, { tx })
    await tx.query('commit')
    expect(await count()).toBe(1)
  })

  it('[X34] is refused for a pool, which may send each statement to another connection', async () => {
    const producer = deployment.producer()
    const pool = new pg.Pool({ connectionString: database.url })
    await expect(
      // @ts-expect-error the types refuse it as well
      producer.enqueue(note, { n: 1 }, { tx: pool }),
    ).rejects.toMatchObject({
      code: 'TRANSACTION_INVALID',
      message: expect.stringContaining('a pool is not'),
    })
    await pool.end()
  })
})

describe('a producer that has just been made', () => {
  const empty = useDatabase({ isEmpty: true })
  let producer: Producer | undefined
  afterEach(() => producer?.close())

  it('[X34] says that the schema is missing, although the statement was sent first', async () => {
    producer = createProducer({ postgres: empty.url })
    const tx = await empty.connect()
    await tx.query('begin')
    await expect(producer.enqueue(note, { n: 1 }, { tx })).rejects.toMatchObject({
      code: 'SCHEMA_MISSING',
      message: expect.stringContaining('longshore migrate'),
    })
    await tx.query('rollback')
  })

  it('[X34] makes its tasks known all the same', async () => {
    const limited = defineTask<number>({ name: 'limited', concurrencyPerKey: 1, queue: 'own' })
    const producer = deployment.producer({ tasks: [limited] })
    const tx = await begun()
    await producer.enqueue(limited, 1, { tx, concurrencyKey: 'a' })
    await tx.query('commit')
    await producer.enqueue(limited, 2)
    expect(await database.rows("select queue from longshore.tasks where name = 'limited'")).toEqual([
      { queue: 'own' },
    ])
  })

  it('[X34] refuses once it is closed, before anything is sent', async () => {
    const closed = createProducer({ postgres: database.urlOf('producer') })
    await closed.close()
    const tx = await begun()
    await expect(closed.enqueue(note, { n: 1 }, { tx })).rejects.toMatchObject({ code: 'PRODUCER_CLOSED' })
    await tx.query('commit')
    expect(await count()).toBe(0)
  })
})

describe('the transaction of ctx.complete', () => {
  it('[X34] takes what a handler enqueues with it, also without waiting', async () => {
    const producer = deployment.producer()
    await deployment.worker({
      postgres: database.urlOf('app'), // what a handler enqueues is enqueued by the worker's user
      handlers: [
        keyed.handle(async ({ payload }, ctx) => {
          await ctx.complete(async tx => {
            producer.enqueue(note, { n: payload }, { tx, delay: '1h' })
            await producer.enqueue(note, { n: payload + 1 }, { tx, delay: '1h' })
          })
        }),
      ],
    })
    await producer.waitFor(await producer.enqueue(keyed, 1))
    expect(await count()).toBe(2)
  })
})

describe('what is no client', () => {
  /** Objects with the properties by which each is known. */
  const fn = () => undefined
  const shapes: [string, unknown, string][] = [
    ['a TypeORM EntityManager', { query: fn, getRepository: fn }, 'manager.query(text, values)'],
    [
      'a TypeORM QueryRunner',
      { query: fn, isTransactionActive: true, manager: {} },
      'manager.query(text, values)',
    ],
    [
      'a TypeORM DataSource',
      { query: fn, createQueryRunner: fn, getRepository: fn },
      'manager.query(text, values)',
    ],
    ['a Knex transaction', Object.assign(() => undefined, { raw: fn, client: {} }), 'acquireConnection()'],
    [
      'a Kysely transaction',
      { executeQuery: fn, selectFrom: fn, isTransaction: true },
      'CompiledQuery.raw(text, values)',
    ],
    ['a Drizzle transaction', { execute: fn, session: {}, dialect: {}, query: {} }, 'session.client'],
    ['a Prisma transaction', { $queryRawUnsafe: fn, $executeRaw: fn }, '$queryRawUnsafe(text, ...values)'],
    [
      'a postgres.js transaction',
      Object.assign(() => undefined, { unsafe: fn, savepoint: fn }),
      'unsafe(text, values)',
    ],
    [
      'a MikroORM EntityManager',
      { getTransactionContext: fn, isInTransaction: fn, getConnection: fn },
      'getTransactionContext()',
    ],
    ['a pg-promise task', { query: fn, oneOrNone: fn, result: fn }, 'result(text, values)'],
  ]

  it.each(shapes)(
    '[X34] is known by its shape, and the message has the line that works: %s',
    async (name, tx, line) => {
      const producer = deployment.producer()
      await expect(producer.enqueue(note, { n: 1 }, { tx: tx as never })).rejects.toMatchObject({
        code: 'TRANSACTION_INVALID',
        message: expect.stringMatching(
          new RegExp(`${name}.*${line.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')}`),
        ),
      })
    },
  )

  it('[X34] is refused where its answer has no rows, and the message says to roll back', async () => {
    const producer = deployment.producer()
    const tx = await begun()
    const rows = { query: async (text: string, values?: unknown[]) => (await tx.query(text, values)).rows }
    for (const call of Object.values(ENQUEUES)) {
      await expect(call(producer, rows as never)).rejects.toMatchObject({
        code: 'TRANSACTION_INVALID',
        message: expect.stringMatching(/returned the rows themselves.*roll your transaction back/),
      })
    }
    const nothing = { query: async (text: string, values?: unknown[]) => void (await tx.query(text, values)) }
    await expect(producer.enqueue(note, { n: 1 }, { tx: nothing as never })).rejects.toMatchObject({
      code: 'TRANSACTION_INVALID',
      message: expect.stringContaining('got undefined'),
    })
    await tx.query('rollback')
    await setImmediate()
    expect(await count()).toBe(0)
  })

  it('[X34] does not compile where its type can tell', () => {
    const producer = undefined as unknown as Producer
    /** As TypeORM declares them: whatever is asked for is answered, says the type. */
    interface QueryRunner {
      isTransactionActive: boolean
      // biome-ignore lint/suspicious/noExplicitAny: as it is
      query(query: string, parameters?: any[]): Promise<any>
    }
    interface EntityManager {
      getRepository(target: unknown): unknown
      // biome-ignore lint/suspicious/noExplicitAny: as it is
      query<T = any>(query: string, parameters?: any[]): Promise<T>
    }
    const typed = {
      // @ts-expect-error its query returns the rows themselves
      runner: (tx: QueryRunner) => producer.enqueue(note, { n: 1 }, { tx }),
      // @ts-expect-error the same
      manager: (tx: EntityManager) => producer.enqueue(note, { n: 1 }, { tx }),
      // @ts-expect-error a pool
      pool: (tx: pg.Pool) => producer.cancel('', { tx }),
      client: (tx: pg.Client) => producer.enqueue(note, { n: 1 }, { tx }),
      poolClient: (tx: pg.PoolClient) => producer.group().submit({ tx }),
      adapter: (manager: EntityManager) =>
        producer.enqueue(
          note,
          { n: 1 },
          {
            tx: { query: async (text, values) => ({ rows: await manager.query(text, values) }) },
          },
        ),
      lent: (tx: Queryable) => producer.enqueue(note, { n: 1 }, { tx }),
    }
    expect(Object.keys(typed)).toHaveLength(7)
  })
})
