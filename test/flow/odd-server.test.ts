/**
 * Servers and sessions that are set as hardly anybody does: longshore is right there, or refuses to start and names the setting. The
 * project `odd server` runs other files on such a server.
 */
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import {
  createProducer,
  createRelay,
  createWorker,
  defineTask,
  type JobRef,
  migrate,
  setPropertyKeys,
} from '../../src/index.ts'
import { openPool } from '../../src/postgres/connect.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { addShadows, makeOddSession, withOptions } from '../support/odd-server.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const step = defineTask<unknown>({ name: 'step', concurrencyPerKey: 2 })
const RUN_AT = new Date('2077-01-02T03:04:05.678Z')

describe("in a user's own transaction", () => {
  let tx: TestClient
  beforeAll(async () => {
    tx = await database.connect()
    if (!inject('isOdd')) await addShadows(tx)
    await makeOddSession(tx)
  })

  it('[X13] enqueues what was meant, whatever that session is set to', async () => {
    const producer = deployment.producer({ tasks: [step] })
    await tx.query('begin')
    const payload = { text: 'back\\slash \' quote " é NULL' }
    const later = await producer.enqueue(step, payload, { tx, runAt: RUN_AT, concurrencyKey: 'NULL' })
    const group = producer.group()
    const first = group.add(step, 1)
    group.add(step, 2, { after: first, workflow: 'a\\b' })
    await group.submit({ tx })
    const [plain, queued] = await producer.enqueueMany(step, [3, 4], { tx, workflow: 'NULL' })
    const moved = await producer.enqueue(step, 5, { tx })
    expect(await producer.change(moved, { tx, runAt: RUN_AT, priority: 7 })).toBe('changed')
    expect(await producer.cancel(plain as JobRef, { tx })).toBe('cancelled')
    await tx.query('commit')
    expect(await producer.get(later)).toMatchObject({ state: 'scheduled', runAt: RUN_AT, payload })
    expect(await producer.get(moved)).toMatchObject({ state: 'scheduled', runAt: RUN_AT, priority: 7 })
    expect(await producer.get(queued as JobRef)).toMatchObject({ state: 'ready' })
    expect(await producer.getGroup(group)).toMatchObject({
      name: null,
      counts: { ready: 1, waiting: 1 },
      createdAt: expect.any(Date),
    })
    expect(await producer.get(first)).toMatchObject({ state: 'ready' })
    expect(
      await database.rows(
        'select id, workflow from longshore.job_status where workflow is not null order by id',
      ),
    ).toEqual([
      { id: expect.any(String), workflow: 'a\\b' },
      { id: plain?.id, workflow: 'NULL' },
      { id: queued?.id, workflow: 'NULL' },
    ])
  })

  it('[X13] plain SQL enqueues, with constraints and a time in words of that session', async () => {
    await setPropertyKeys({ postgres: database.url, keys: ['gpu'] })
    const producer = deployment.producer()
    const { rows } = await tx.query(
      `select longshore.enqueue('step', '{"n": 1}', jsonb_build_object('runAt', timestamptz '2.1.2077 3:04:05.678Z',
         'constraints', '{"gpu": "a é"}'::jsonb)) as id`,
    )
    expect(await producer.get(rows[0].id)).toMatchObject({
      runAt: RUN_AT,
      payload: { n: 1 },
      constraints: { gpu: 'a é' },
    })
    await expect(tx.query("select longshore.enqueue('st' || chr(1))")).rejects.toMatchObject({
      code: '22023',
    })
    const { rows: again } = await tx.query(`select longshore.enqueue('step_0123456789_x1f') as id`)
    expect(await producer.get(again[0].id)).toMatchObject({ task: 'step_0123456789_x1f' })
  })

  it('[X13] views tell times in the way of that session', async () => {
    const job = await deployment.producer({ tasks: [step] }).enqueue(step, 1, { runAt: RUN_AT })
    const { rows } = await tx.query('select reason from longshore.blocked where id = $1', [job.id])
    expect(rows[0].reason).toBe('is due at 02.01.2077 08:49:05.678 ODD')
  })
})

describe('connections of its own', () => {
  const NAMES = [
    'default_transaction_isolation',
    'statement_timeout',
    'lock_timeout',
    'idle_in_transaction_session_timeout',
    'idle_session_timeout',
    'search_path',
  ]
  const settingsOf = async (settings: readonly string[], isLent = false) => {
    const pool = openPool(withOptions(database.url, settings), 1, () => undefined, { isLent })
    try {
      const { rows } = await pool.query(
        'select jsonb_object_agg(name, setting) as held from pg_settings where name = any ($1)',
        [NAMES],
      )
      return rows[0]?.['held']
    } finally {
      await pool.end()
    }
  }
  const SHORT = [
    'default_transaction_isolation=serializable',
    ...NAMES.filter(name => name.endsWith('timeout')).map(name => `${name}=900`),
    'search_path=odd',
  ]
  const LEAST = {
    default_transaction_isolation: 'read committed',
    statement_timeout: '10000',
    lock_timeout: '1000',
    idle_in_transaction_session_timeout: '1000',
    idle_session_timeout: '86400000',
    search_path: 'pg_catalog',
  }

  it('[X13] have what longshore needs, and otherwise what they are given', async () => {
    expect(await settingsOf(SHORT)).toEqual(LEAST)
    // A handler's own statements find their tables.
    expect(await settingsOf(SHORT, true)).toEqual({ ...LEAST, search_path: 'odd' })
    const given = {
      statement_timeout: '60000',
      lock_timeout: '0',
      idle_in_transaction_session_timeout: '5000',
    }
    const settings = Object.entries(given).map(([name, value]) => `${name}=${value}`)
    expect(await settingsOf(settings)).toMatchObject(given)
  })
})

describe('a server that longshore cannot work with', () => {
  const handlers = [step.handle(() => undefined)]
  const begin = (postgres: string) => ({
    worker: () => createWorker({ postgres, handlers, redis: '' }).start(),
    relay: () => createRelay({ postgres }).start(),
    migrate: () => migrate({ postgres }),
  })

  it.each([
    [
      'default_transaction_read_only',
      'on',
      /default_transaction_read_only is on.*alter role \S+ set default_transaction_read_only = off/,
    ],
    [
      'session_replication_role',
      'replica',
      /session_replication_role is replica.*alter role \S+ set session_replication_role = origin/,
    ],
  ])('[X13] is refused at start by the name of the setting: %s = %s', async (name, value, message) => {
    // Only a superuser may set the second.
    for (const start of Object.values(begin(withOptions(database.url, [`${name}=${value}`]))))
      await expect(start()).rejects.toMatchObject({
        code: 'CONFIG_INVALID',
        message: expect.stringMatching(message),
      })
  })

  describe('for its encoding', () => {
    const name = `longshore_test_${process.pid}_latin`
    const onServer = async (text: string) => {
      const admin = new pg.Client(inject('adminUrl'))
      await admin.connect()
      await admin.query(text)
      await admin.end()
    }
    beforeAll(() => onServer(`create database ${name} encoding 'LATIN1' locale 'C' template template0`))
    afterAll(() => onServer(`drop database ${name} with (force)`))

    it('[X13] is refused by migrate', async () => {
      const url = new URL(database.url)
      url.pathname = `/${name}`
      await expect(migrate({ postgres: url.href })).rejects.toMatchObject({
        code: 'CONFIG_INVALID',
        message: expect.stringContaining(
          'server_encoding of this database is LATIN1, and longshore needs UTF8',
        ),
      })
    })
  })

  it('[X13] says so to a producer, which may be there to read only', async () => {
    const postgres = withOptions(database.url, ['default_transaction_read_only=on'])
    const producer = createProducer({ postgres })
    const tx = await database.connect()
    try {
      const job = await deployment.producer({ tasks: [step] }).enqueue(step, 1)
      expect(await producer.get(job)).toMatchObject({ state: 'ready' })
      await tx.query('begin read only')
      await expect(deployment.producer().enqueue(step, 1, { tx })).rejects.toMatchObject({
        code: 'STORE_UNAVAILABLE',
        message: expect.stringContaining('set default_transaction_read_only = off'),
      })
    } finally {
      await producer.close()
    }
  })
})
