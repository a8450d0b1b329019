import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { defineTask, newJobId } from '../../src/index.ts'
import { settling, workByHand } from '../support/by-hand.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { waitsForLock } from '../support/locks.ts'
import { gate } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const note = defineTask({ name: 'note', payload: z.object({ n: z.number() }) })

const countJobs = async () =>
  (await database.rows<{ n: number }>('select count(*)::int as n from longshore.jobs'))[0]?.n
const clear = () => database.rows('truncate longshore.jobs, longshore.finished_jobs')

describe('enqueue', () => {
  it('[X1] makes a job that is durable and ready when it resolves', async () => {
    const producer = deployment.producer()
    const ref = await producer.enqueue(note, { n: 1 })
    expect(ref).toEqual({ id: ref.id, task: 'note', isNew: true })
    expect(await producer.get(ref)).toMatchObject({
      state: 'ready',
      task: 'note',
      queue: 'default',
      payload: { n: 1 },
      priority: 0,
      attempts: 0,
      maxAttempts: 3,
      hasWorker: false,
    })
  })

  it("[X1] is part of the caller's transaction: a commit makes the job, a rollback leaves nothing", async () => {
    const producer = deployment.producer()
    const tx = await database.connect()
    await tx.query('begin')
    const kept = await producer.enqueue(note, { n: 1 }, { tx })
    expect(await producer.get(kept)).toBeUndefined()
    await tx.query('commit')
    expect(await producer.get(kept)).toMatchObject({ state: 'ready' })

    await tx.query('begin')
    const undone = await producer.enqueue(note, { n: 2 }, { tx })
    const many = await producer.enqueueMany(note, [{ n: 3 }, { n: 4 }], { tx })
    await tx.query('rollback')
    for (const ref of [undone, ...many]) expect(await producer.get(ref)).toBeUndefined()
  })

  it.each(['read committed', 'repeatable read', 'serializable'])(
    '[X1] works inside a %s transaction, also for a lane that another open transaction is making',
    async isolation => {
      const producer = deployment.producer()
      const [one, two] = [await database.connect(), await database.connect()]
      const tag = `tag of ${isolation}`
      for (const tx of [one, two]) await tx.query(`begin isolation level ${isolation}`)
      const first = await producer.enqueue(note, { n: 1 }, { tx: one, tag })
      const second = await producer.enqueue(note, { n: 2 }, { tx: two, tag })
      for (const tx of [one, two]) await tx.query('commit')
      expect(await producer.get(first)).toMatchObject({ state: 'ready' })
      expect(await producer.get(second)).toMatchObject({ state: 'ready' })
    },
  )

  it('[X1] does not wait for a transaction that holds an enqueue open', async () => {
    const producer = deployment.producer()
    const tx = await database.connect()
    await tx.query('begin')
    await producer.enqueue(note, { n: 1 }, { tx })
    const other = await producer.enqueue(note, { n: 2 })
    expect(await producer.get(other)).toMatchObject({ state: 'ready' })
    await tx.query('rollback')
  })

  it('shares an insert and a commit with enqueues made at the same time', async () => {
    await clear()
    const producer = deployment.producer()
    await producer.enqueue(note, { n: 0 })
    await Promise.all(Array.from({ length: 200 }, (_, n) => producer.enqueue(note, { n })))
    const [row] = await database.rows<{ commits: number }>(
      'select count(distinct xmin::text)::int as commits from longshore.jobs',
    )
    expect(await countJobs()).toBe(201)
    expect(row?.commits).toBeLessThanOrEqual(4)
  })

  it('hands out ids that ascend in the order of the calls', async () => {
    const producer = deployment.producer()
    const refs = await Promise.all(Array.from({ length: 500 }, (_, n) => producer.enqueue(note, { n })))
    const ids = refs.map(ref => ref.id)
    expect([...ids].sort()).toEqual(ids)
    expect(new Set(ids).size).toBe(500)
  })

  it('takes a batch apart that Postgres refuses, so that one bad job does not fail its neighbours', async () => {
    await clear()
    await database.rows("alter table longshore.jobs add constraint no_13 check (payload ->> 'n' <> '13')")
    const producer = deployment.producer()
    const settled = await Promise.allSettled(
      Array.from({ length: 20 }, (_, n) => producer.enqueue(note, { n })),
    )
    expect(settled.filter(outcome => outcome.status === 'rejected')).toHaveLength(1)
    expect(settled[13]?.status).toBe('rejected')
    expect(await countJobs()).toBe(19)
  })

  it('enqueueMany makes all of its jobs or none, also over several chunks', async () => {
    await clear()
    const producer = deployment.producer()
    const payloads = Array.from({ length: 2500 }, (_, n) => ({ n: n === 2400 ? 13 : 1000 + n }))
    await expect(producer.enqueueMany(note, payloads)).rejects.toThrow('no_13')
    expect(await countJobs()).toBe(0)
    await database.rows('alter table longshore.jobs drop constraint no_13')
    expect(await producer.enqueueMany(note, payloads)).toHaveLength(2500)
    expect(await countJobs()).toBe(2500)
    expect(await producer.enqueueMany(note, [])).toEqual([])
  })

  it('does not hold on to what it has enqueued', async () => {
    if (!globalThis.gc) throw new Error('the test run must expose gc: see vitest.config.ts')
    await clear()
    const producer = deployment.producer()
    const fill = async (chunks: number) => {
      for (let chunk = 0; chunk < chunks; chunk++) {
        await producer.enqueueMany(
          note,
          Array.from({ length: 1000 }, (_, n) => ({ n })),
        )
      }
      globalThis.gc?.()
      return process.memoryUsage().heapUsed
    }
    const before = await fill(20)
    const after = await fill(60)
    expect(after - before).toBeLessThan(4 * 1024 * 1024)
    await clear()
  }, 60_000)
})

describe('an id of the caller', () => {
  const id = () => newJobId() as string

  it('enqueued again changes nothing while the job waits', async () => {
    const producer = deployment.producer()
    const chosen = id()
    expect(await producer.enqueue(note, { n: 1 }, { id: chosen })).toMatchObject({ id: chosen, isNew: true })
    const again = await producer.enqueue(note, { n: 2 }, { id: chosen.toUpperCase(), priority: 9 })
    expect(again).toMatchObject({ id: chosen, isNew: false })
    expect(await producer.get(chosen)).toMatchObject({ payload: { n: 1 }, priority: 0 })
  })

  it('enqueued again changes nothing while the job runs and after it has run', async () => {
    const producer = deployment.producer()
    const runs: number[] = []
    const started = gate()
    const mayEnd = gate()
    await deployment.worker({
      handlers: [
        note.handle(async job => {
          runs.push(job.payload.n)
          started.open()
          await mayEnd.opened
        }),
      ],
    })
    const chosen = id()
    await producer.enqueue(note, { n: 77 }, { id: chosen })
    await started.opened
    expect(await producer.enqueue(note, { n: 78 }, { id: chosen })).toMatchObject({ isNew: false })
    mayEnd.open()
    await producer.waitFor(chosen)
    expect(await producer.enqueue(note, { n: 79 }, { id: chosen })).toMatchObject({ isNew: false })
    const after = await producer.enqueue(note, { n: 80 })
    await producer.waitFor(after)
    expect(runs.filter(n => n > 76)).toEqual([77, 80])
  })

  /** A job with this id that runs, ready to be settled by hand. */
  async function claimed(chosen: string) {
    const producer = deployment.producer()
    await clear()
    await producer.enqueue(note, { n: 1 }, { id: chosen })
    const worker = await workByHand(database, ['note'])
    const [job] = await worker.claim(1)
    if (job?.id !== chosen) throw new Error('the job was not claimed')
    return { producer, settle: (client?: TestClient) => worker.settle([settling(job)], client) }
  }

  it.each(['read committed', 'repeatable read'])(
    'enqueued again while the settle of the job is not yet committed does not run it twice (%s)',
    async isolation => {
      const chosen = id()
      const { producer, settle } = await claimed(chosen)
      const [settler, tx] = [await database.connect(), await database.connect()]
      await settler.query('begin')
      await settle(settler)
      await tx.query(`begin isolation level ${isolation}`)
      await tx.query('select 1')
      const again = producer.enqueue(note, { n: 2 }, { id: chosen, tx }).then(
        ref => ref.isNew,
        (error: { code?: string }) => error.code,
      )
      await waitsForLock(database, tx)
      await settler.query('commit')
      // Above READ COMMITTED the caller's snapshot is too old to know: it must try the transaction again.
      expect(await again).toBe(isolation === 'read committed' ? false : '40001')
      await tx.query('commit')
      expect(await countJobs()).toBe(0)
      expect(await producer.get(chosen)).toMatchObject({ state: 'succeeded', payload: { n: 1 } })
    },
  )

  it('enqueued again in an open transaction does not hold up the settle of the job', async () => {
    const chosen = id()
    const { producer, settle } = await claimed(chosen)
    const tx = await database.connect()
    await tx.query('begin')
    expect(await producer.enqueue(note, { n: 2 }, { id: chosen, tx })).toMatchObject({ isNew: false })
    expect(await settle()).toEqual([])
    await tx.query('commit')
    expect(await countJobs()).toBe(0)
  })
})

describe('bad input is refused with a code, the value and what to do', () => {
  const refuse = (code: string, part: string) => ({ code, message: expect.stringContaining(part) })

  it.each([
    [{ priority: 2048 }, 'priority must be a whole number from 0 to 2047; got 2048'],
    [{ priority: -1 }, 'got -1'],
    [{ priority: 1.5 }, 'got 1.5'],
    [{ priority: Number.NaN }, 'got NaN'],
    [{ attempts: 0 }, 'attempts must be a whole number from 1 to 1000'],
    [{ runAt: new Date(Number.NaN) }, 'runAt must be a Date'],
    [{ delay: 1, runAt: new Date() }, 'give delay or runAt, not both'],
    [{ id: 'not-a-uuid' }, 'a job id is a UUID'],
    [{ prioritty: 5 } as object, 'unknown option "prioritty"'],
    [{ delay: -1 }, 'delay must be milliseconds'],
    [{ delay: Number.POSITIVE_INFINITY }, 'got Infinity'],
    [{ delay: '5 parsecs' as never }, 'got 5 parsecs'],
    [{ tag: '' }, 'tag must be a text of 1 to 100 characters'],
    [{ tag: 'a\u0000b' }, 'without control characters'],
    [{ queue: 'q'.repeat(101) }, 'queue must be'],
  ])('%j', async (options, part) => {
    await expect(deployment.producer().enqueue(note, { n: 1 }, options)).rejects.toMatchObject(
      refuse('JOB_INVALID', part),
    )
  })

  it('a payload that does not fit its schema, or that cannot be stored', async () => {
    const producer = deployment.producer()
    await expect(producer.enqueue(note, { n: 'x' } as never)).rejects.toMatchObject(
      refuse('PAYLOAD_INVALID', 'does not fit task note: n:'),
    )
    const free = defineTask({ name: 'free' })
    for (const [payload, part] of [
      [{ a: { b: Number.NaN } }, 'a.b is NaN'],
      [{ a: 1n }, 'a is a bigint'],
      [[undefined], '[0] is undefined'],
      [undefined, 'is undefined'],
      ['\u0000', '\\u0000'],
      ['\ud800', 'surrogate'],
      [{ toJSON: () => '\u0000' }, '\\u0000'],
      [new Map([[1, 2]]), 'is a Map'],
      [{ big: 'x'.repeat(300_000) }, 'the limit is 262144'],
    ] as const) {
      await expect(producer.enqueue(free, payload)).rejects.toMatchObject(refuse('PAYLOAD_REFUSED', part))
    }
    const cycle: Record<string, unknown> = {}
    cycle['self'] = cycle
    await expect(producer.enqueue(free, cycle)).rejects.toMatchObject(
      refuse('PAYLOAD_REFUSED', 'refers to itself'),
    )
  })

  it('stores hostile but legal payloads as they are', async () => {
    const producer = deployment.producer()
    const free = defineTask({ name: 'free' })
    for (const payload of [
      JSON.parse('{"__proto__": {"polluted": true}, "constructor": 1}') as unknown,
      'line\nbreak \\u0000 \u2028 "quote"',
      null,
      0,
      [[]],
      { 'key with "quotes" and \n': '🚢' },
    ]) {
      const ref = await producer.enqueue(free, payload)
      expect(JSON.stringify((await producer.get(ref))?.payload)).toBe(JSON.stringify(payload))
    }
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined()
  })
})

describe('plain SQL', () => {
  const enqueue = (...values: unknown[]) =>
    database.rows<{ id: string }>(
      `select longshore.enqueue(${values.map((_, i) => `$${i + 1}`).join(', ')}) as id`,
      values,
    )

  it('[X1] enqueues with the defaults of the registered task, and a rollback undoes it', async () => {
    const special = defineTask({ name: 'special', tag: 'gpu', queue: 'media', retry: { attempts: 7 } })
    const producer = deployment.producer({ tasks: [special] })
    await producer.enqueue(special, {})
    const [row] = await enqueue('special', '{"n": 1}')
    expect(await producer.get(String(row?.id))).toMatchObject({
      state: 'ready',
      queue: 'media',
      maxAttempts: 7,
      payload: { n: 1 },
    })
    const [lanes] = await database.rows<{ n: number }>(
      "select count(*)::int as n from longshore.lanes where task = 'special'",
    )
    expect(lanes?.n).toBe(1)

    const tx = await database.connect()
    await tx.query('begin')
    const undone = (await tx.query("select longshore.enqueue('special') as id")).rows[0] as { id: string }
    await tx.query('rollback')
    expect(await producer.get(undone.id)).toBeUndefined()
  })

  it('[X1] takes priority, delay, run time, attempts, tag, queue and id', async () => {
    const producer = deployment.producer()
    const chosen = newJobId()
    const options = { id: chosen, priority: 10, delayMs: 3_600_000, attempts: 2, tag: 'x', queue: 'y' }
    await enqueue('unknown', '{}', JSON.stringify(options))
    await enqueue('unknown', '{"again": true}', JSON.stringify(options))
    expect(await producer.get(chosen)).toMatchObject({
      state: 'scheduled',
      priority: 10,
      maxAttempts: 2,
      queue: 'y',
      payload: {},
    })
    const [past] = await enqueue('unknown', '{}', '{"runAt": "2001-02-03T04:05:06.789Z"}')
    expect(await producer.get(String(past?.id))).toMatchObject({
      state: 'ready',
      runAt: new Date('2001-02-03T04:05:06.789Z'),
    })
  })

  it('makes ids that ascend', async () => {
    const rows = await database.rows<{ id: string }>(
      "select longshore.enqueue('many', to_jsonb(n)) as id from generate_series(1, 200) n",
    )
    const ids = rows.map(row => row.id)
    expect([...ids].sort()).toEqual(ids)
    expect(ids[0]).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
  })

  it.each([
    ['{"priority": 3000}', 'priority must be a whole number from 0 to 2047, got 3000'],
    ['{"priority": 1.5}', 'got 1.5'],
    ['{"priority": -1}', 'got -1'],
    ['{"attempts": 0}', 'attempts must be'],
    ['{"delayMs": -5}', 'delayMs must be'],
    ['{"delayMs": "NaN"}', 'delayMs must be'],
    ['{"delayMs": 5, "runAt": "2030-01-01"}', 'not both'],
    ['{"runAt": "3000-01-01"}', 'runAt must lie'],
    ['{"urgent": true}', 'unknown option "urgent"'],
  ])('refuses %s', async (options, message) => {
    await expect(enqueue('t', '{}', options)).rejects.toThrow(message)
  })

  it('refuses a batch whose payloads and ids do not fit each other, and makes nothing of it', async () => {
    const shape = { queue: 'q', task: 't', tag: 'g', constraintTag: 'c:', maxAttempts: 1, priority: 0 }
    const call = database.rows("select longshore.enqueue_jobs($1, $2, null, '1', false)", [
      JSON.stringify([shape]),
      [newJobId(), newJobId()],
    ])
    await expect(call).rejects.toThrow('1 payloads for 2 ids')
  })

  it('refuses a payload or a name that is too large', async () => {
    await expect(enqueue('t', JSON.stringify('x'.repeat(300_000)))).rejects.toThrow('at most 262144 bytes')
    await expect(enqueue('t'.repeat(201))).rejects.toThrow('1 to 200 characters')
  })
})
