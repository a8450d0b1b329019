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
      const begin = (tx: TestClient) => tx.query(`begin isolation level ${isolation}`)
      await begin(one)
      await begin(two)
      const first = await producer.enqueue(note, { n: 1 }, { tx: one, tag })
      let second = await producer.enqueue(note, { n: 2 }, { tx: two, tag })
      await one.query('commit')
      if (isolation === 'serializable') {
        // Each has made the lane because it did not see the other's: as always there, one of them is tried again.
        await expect(two.query('commit')).rejects.toMatchObject({ code: '40001' })
        await begin(two)
        second = await producer.enqueue(note, { n: 2 }, { tx: two, tag })
      }
      await two.query('commit')
      expect(await producer.get(first)).toMatchObject({ state: 'ready' })
      expect(await producer.get(second)).toMatchObject({ state: 'ready' })
    },
  )

  it('[X1] two serializable transactions do not fail each other where the lane is there', async () => {
    const producer = deployment.producer({ tasks: [note] })
    await producer.enqueue(note, { n: 0 })
    const [one, two] = [await database.connect(), await database.connect()]
    for (const tx of [one, two]) await tx.query('begin isolation level serializable')
    const first = await producer.enqueue(note, { n: 1 }, { tx: one })
    const second = await producer.enqueue(note, { n: 2 }, { tx: two })
    for (const tx of [one, two]) await tx.query('commit')
    for (const ref of [first, second]) expect(await producer.get(ref)).toMatchObject({ state: 'ready' })
  })

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

describe('enqueueMany with options for each', () => {
  const sorted = defineTask<{ n: number; payload?: string }>({ name: 'sorted', concurrencyPerKey: 1 })

  it('[X1] gives each job its own options, which come before those that all share', async () => {
    const producer = deployment.producer()
    const ids = [newJobId(), newJobId()]
    const soon = new Date(Date.now() + 3_600_000)
    const payloads = [{ n: 0, payload: 'only a field' }, { n: 1 }, { n: 2 }, { n: 3 }]
    const refs = await producer.enqueueMany(sorted, payloads, {
      priority: 5,
      delay: '2h',
      each: ({ n }, index) => {
        if (index === 3) return undefined
        return n === 0
          ? { id: ids[0] as string, priority: 9, runAt: soon, queue: 'other', tag: 'gpu', maxAttempts: 7 }
          : {
              ...(n === 1 ? { id: ids[1] as string } : {}),
              concurrencyKey: 'tenant',
              priority: undefined as never,
            }
      },
    })
    expect(refs.map(ref => ref.isNew)).toEqual([true, true, true, true])
    expect(refs.slice(0, 2).map(ref => ref.id)).toEqual(ids)
    const [first, second, third, last] = await Promise.all(refs.map(ref => producer.get(ref)))
    expect(first).toMatchObject({
      priority: 9,
      runAt: soon,
      queue: 'other',
      maxAttempts: 7,
      payload: payloads[0],
    })
    for (const job of [second, third, last]) expect(job).toMatchObject({ priority: 5, state: 'scheduled' })
    expect(
      await database.rows(
        "select count(*)::int as n from longshore.jobs j join longshore.lanes l on l.id = j.lane where l.concurrency_key = 'tenant'",
      ),
    ).toEqual([{ n: 2 }])
  })

  it.each([
    ['outside a transaction', false, {}],
    ['outside a transaction, into a workflow', false, { workflow: 'w' }],
    ['in a transaction', true, {}],
    ['in a transaction, into a workflow', true, { workflow: 'w' }],
  ])('[X1] leaves alone what is known by its id: %s', async (_, isInTransaction, shared) => {
    const producer = deployment.producer()
    const [known, twice] = [newJobId(), newJobId()]
    await producer.enqueue(sorted, { n: 0 }, { id: known })
    const tx = isInTransaction ? await database.connect() : undefined
    await tx?.query('begin')
    const ids = [known, twice, undefined, twice]
    const enqueue = () =>
      producer.enqueueMany(
        sorted,
        ids.map((_, n) => ({ n: n + 1 })),
        { ...shared, tx, each: (_, n) => (ids[n] === undefined ? undefined : { id: ids[n] }) },
      )
    expect((await enqueue()).map(ref => ref.isNew)).toEqual([false, true, true, false])
    expect((await enqueue()).map(ref => ref.isNew)).toEqual([false, false, true, false])
    await tx?.query('commit')
    expect(await producer.get(known)).toMatchObject({ payload: { n: 0 } })
    expect(await producer.get(twice)).toMatchObject({ payload: { n: 2 } })
    expect(await countJobs()).toBe(4)
  })

  it('[X1] makes none of them where one has an id of another task', async () => {
    const producer = deployment.producer()
    const { id } = await producer.enqueue(note, { n: 1 })
    const other = { code: 'JOB_INVALID', message: expect.stringContaining('is that of a job of task note') }
    const tx = await database.connect()
    for (const count of [1, 3, 2500]) {
      const payloads = Array.from({ length: count }, (_, n) => ({ n }))
      const each = (_: unknown, n: number) => (n === count - 1 ? { id } : undefined)
      await expect(producer.enqueueMany(sorted, payloads, { each })).rejects.toMatchObject(other)
      await tx.query('begin')
      await expect(producer.enqueueMany(sorted, payloads, { each, tx })).rejects.toMatchObject(other)
      await tx.query('commit')
    }
    expect(await countJobs()).toBe(1)
  })

  it.each([
    [{ id: newJobId() }, 'enqueueMany: id is for one job'],
    [{ each: [{ priority: 1 }] }, 'each must be a function (payload, index) => options'],
    [{ each: () => ({ prioritty: 1 }) }, 'unknown option "prioritty"; options are priority, delay'],
    [{ each: () => ({ tx: {} }) }, 'unknown option "tx"'],
    [{ each: () => 5 }, 'each, for payload 0 must be an object of options; got 5'],
    [{ each: async () => ({ priority: 1 }) }, 'got a promise'],
    [{ each: () => ({ id: 'mine' }) }, 'a job id is a UUID'],
    [{ eech: 1 }, 'unknown option "eech"; options are priority, delay'],
  ])('refuses %j', async (options, part) => {
    const many = deployment.producer().enqueueMany(sorted, [{ n: 1 }], options as never)
    await expect(many).rejects.toMatchObject({ code: 'JOB_INVALID', message: expect.stringContaining(part) })
  })
})

describe('bad input is refused with a code, the value and what to do', () => {
  const refuse = (code: string, part: string) => ({ code, message: expect.stringContaining(part) })

  it.each([
    [{ priority: 2048 }, 'priority must be a whole number from 0 to 2047; got 2048'],
    [{ priority: -1 }, 'got -1'],
    [{ priority: 1.5 }, 'got 1.5'],
    [{ priority: Number.NaN }, 'got NaN'],
    [{ maxAttempts: 0 }, 'maxAttempts must be a whole number from 1 to 1000'],
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
    const special = defineTask({ name: 'special', tag: 'gpu', queue: 'media', retry: { maxAttempts: 7 } })
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

  it('[X1] takes priority, delay, run time, maximum of attempts, tag, queue and id', async () => {
    const producer = deployment.producer()
    const chosen = newJobId()
    const options = { id: chosen, priority: 10, delayMs: 3_600_000, maxAttempts: 2, tag: 'x', queue: 'y' }
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
    ['{"maxAttempts": 0}', 'maxAttempts must be'],
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
