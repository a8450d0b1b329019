import { pino } from 'pino'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  type Duration,
  defineTask,
  type FinishedJob,
  LongshoreError,
  NonRetryableError,
} from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { counter, eventually, gate } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
let names = 0
const newName = () => `task-${++names}`

/** Run one job of a task made for this test, and see how it ended. */
async function runOnce(
  run: (attempt: number, signal: AbortSignal) => unknown,
  options: { attempts?: number; backoff?: Duration; timeout?: Duration } = {},
): Promise<FinishedJob> {
  const task = defineTask({
    name: newName(),
    retry: { maxAttempts: options.attempts ?? 1, backoff: { type: 'fixed', delay: options.backoff ?? 0 } },
    ...(options.timeout === undefined ? {} : { timeout: options.timeout }),
  })
  const producer = deployment.producer()
  await deployment.worker({ handlers: [task.handle((job, ctx) => run(job.attempt, ctx.signal))] })
  return producer.waitFor(await producer.enqueue(task, { some: 'payload' }))
}

describe('a run', () => {
  it('[X5] ends with what the handler returned, readable by get and waitFor', async () => {
    const add = defineTask({
      name: newName(),
      payload: z.object({ a: z.number(), b: z.number().default(2) }),
      result: z.object({ sum: z.number() }),
    })
    const producer = deployment.producer()
    await deployment.worker({
      handlers: [add.handle(async ({ payload }) => ({ sum: payload.a + payload.b }))],
    })
    const ref = await producer.enqueue(add, { a: 1 })
    const ended = await producer.waitFor(ref)
    if (ended.state !== 'succeeded') throw new Error(`it ${ended.state}`)
    const sum: number = ended.result.sum
    expect(sum).toBe(3)
    expect(ended.payload).toEqual({ a: 1 })
    expect(await producer.get(ref)).toEqual(ended)
    expect(await producer.get(ref.id)).toEqual(ended)
  })

  it.each([
    ['nothing', undefined, null],
    ['null', null, null],
    ['a text', 'fine', 'fine'],
    ['a Date', new Date(0), '1970-01-01T00:00:00.000Z'],
    ['a nested object', { a: [1, { b: null }] }, { a: [1, { b: null }] }],
  ])('[X5] that returns %s succeeds', async (_, value, result) => {
    expect(await runOnce(() => value)).toMatchObject({ state: 'succeeded', result })
  })

  it.each([
    ['a bigint', 1n, 'is a bigint'],
    ['a function', () => 1, 'is a function'],
    ['NaN', { deep: [Number.NaN] }, 'deep[0] is NaN'],
    ['a Map', new Map(), 'is a Map'],
    ['\\u0000', 'a\u0000b', '\\u0000'],
    ['\\u0000 in a key', { '\u0000': 1 }, 'which Postgres cannot store'],
    ['1 MB', 'x'.repeat(1024 * 1024), 'is 1048578 bytes of JSON, the limit is 262144'],
  ])(
    '[X5] that returns %s fails as RESULT_REFUSED at once, attempts left or not',
    async (_, value, problem) => {
      const ended = await runOnce(() => value, { attempts: 5 })
      expect(ended).toMatchObject({
        state: 'failed',
        attempts: 1,
        error: { code: 'RESULT_REFUSED', message: expect.stringContaining(problem) },
      })
    },
  )

  it('[W3] survives whatever a handler throws or returns, and keeps its permits', async () => {
    const task = defineTask({ name: newName(), retry: { maxAttempts: 1 } })
    const producer = deployment.producer()
    const hostile = () => Object.defineProperty(new Error('x'), 'message', { get: () => fail() })
    const fail = () => {
      throw Object.create(null)
    }
    await deployment.worker({
      maxConcurrentTasks: 2,
      handlers: [
        task.handle(job => {
          if (job.payload === 'throws') throw hostile()
          if (job.payload === 'rejects') return Promise.reject(hostile())
          if (job.payload === 'proxy') throw new Proxy({}, { get: fail, getPrototypeOf: fail, ownKeys: fail })
          if (job.payload === 'getter') return { get a() { return fail() } } // biome-ignore format: one line
          if (job.payload === 'thenable')
            return Object.fromEntries([['then', (resolve: (value: string) => void) => resolve('then')]])
          return 'fine'
        }),
      ],
    })
    const payloads = ['throws', 'rejects', 'proxy', 'getter', 'throws', 'thenable', 'fine', 'fine', 'fine']
    const refs = await producer.enqueueMany(task, payloads)
    const ended = await Promise.all(refs.map(ref => producer.waitFor(ref)))
    expect(ended.map(job => (job.state === 'succeeded' ? job.result : job.error?.code))).toEqual([
      ...['HANDLER_FAILED', 'HANDLER_FAILED', 'HANDLER_FAILED', 'RESULT_REFUSED', 'HANDLER_FAILED'],
      ...['then', 'fine', 'fine', 'fine'],
    ])
  })

  it('[X29] [S16] keeps the causes and stacks of each attempt, and tells of them in get, waitFor, explain and the log', async () => {
    const task = defineTask({
      name: newName(),
      retry: { maxAttempts: 2, backoff: { type: 'fixed', delay: '1h' } },
    })
    const producer = deployment.producer()
    const lines: Record<string, unknown>[] = []
    const logger = pino({ level: 'info' }, { write: line => void lines.push(JSON.parse(line)) })
    await deployment.worker({ logger, handlers: [task.handle(() => fetch('http://127.0.0.1:2'))] })
    const ref = await producer.enqueue(task, 1)
    const stack = expect.stringContaining('node:internal')
    const cause = {
      name: 'Error',
      message: 'connect ECONNREFUSED 127.0.0.1:2',
      code: 'ECONNREFUSED',
      stack: expect.stringContaining('TCPConnectWrap'),
    }
    const error = { code: 'HANDLER_FAILED', name: 'TypeError', message: 'fetch failed', stack, cause }
    const text = 'fetch failed, caused by: connect ECONNREFUSED 127.0.0.1:2'
    const told = { job: ref.id, err: { type: 'TypeError', message: 'fetch failed', stack, cause } }

    await eventually(
      'it waits for its second attempt',
      async () => (await producer.get(ref))?.state === 'scheduled',
    )
    expect(await producer.get(ref)).toMatchObject({ attempts: 1, error })
    const [due] = (await producer.explain(ref))?.reasons ?? []
    expect(due).toMatchObject({ kind: 'due', error: text, sentence: expect.stringContaining(`(${text})`) })
    await producer.change(ref, { delay: 0 })
    expect(await producer.waitFor(ref)).toMatchObject({ state: 'failed', attempts: 2, error })
    expect((await producer.explain(ref))?.summary).toMatch(text)
    expect(lines.filter(line => line['err'] !== undefined)).toMatchObject([
      { ...told, attempt: 1, msg: 'an attempt failed; the job is tried again' },
      { ...told, attempt: 2, msg: 'a job failed' },
    ])
  })

  it('[X29] is settled whatever is behind the error that its handler throws', async () => {
    const circle = new Error('circle')
    circle.cause = new AggregateError([circle], 'several')
    const throwing = Object.defineProperty(new Error('getter'), 'cause', {
      get: () => {
        throw new Error('no')
      },
    })
    const bad = `\u0000\ud800${'x'.repeat(1e6)}`
    const causes: Record<string, unknown> = {
      circle,
      throwing,
      text: bad,
      error: new Error(bad),
      nothing: null,
    }
    const task = defineTask<string>({ name: newName(), retry: { maxAttempts: 1 } })
    const producer = deployment.producer()
    const lines: string[] = []
    const logger = pino({ level: 'info' }, { write: line => void lines.push(line) })
    await deployment.worker({
      logger,
      handlers: [
        task.handle(({ payload }) => {
          throw new Error(payload, { cause: causes[payload] })
        }),
      ],
    })
    const refs = await producer.enqueueMany(task, Object.keys(causes))
    const ended = await Promise.all(refs.map(ref => producer.waitFor(ref)))
    expect(ended.map(job => job.error)).toMatchObject([
      { message: 'circle', cause: { message: 'circle', cause: { errors: [{ name: 'LeftOut' }] } } },
      { message: 'throwing', cause: { message: 'getter' } },
      { message: 'text', cause: { name: 'NotAnError' } },
      { message: 'error', cause: { message: expect.stringMatching(/^\ufffd\ufffdx{1997}…$/) } },
      { message: 'nothing' },
    ])
    expect(lines.filter(line => line.includes('"msg":"a job failed"'))).toHaveLength(5)
    expect(Math.max(...lines.map(line => line.length))).toBeLessThan(20_000)
  })

  it('[S10] is settled as it ended when Postgres could not take it at first for another reason', async () => {
    await database.rows(`
      create sequence tries;
      create function refuse() returns trigger language plpgsql as $$
      begin
        if nextval('public.tries') <= 3 then raise 'no space left' using errcode = '53100'; end if;
        if nextval('public.tries') <= 8 then raise 'out of order' using errcode = 'XX000'; end if;
        return new;
      end $$;
      create trigger refuse before insert on longshore.finished_jobs for each row execute function refuse()`)
    try {
      expect(await runOnce(() => 'kept')).toMatchObject({ state: 'succeeded', result: 'kept', attempts: 1 })
    } finally {
      await database.rows('drop trigger refuse on longshore.finished_jobs')
    }
  })

  it('fails as RESULT_REFUSED when the result does not fit its schema', async () => {
    const task = defineTask({ name: newName(), result: z.object({ ok: z.boolean() }) })
    const producer = deployment.producer()
    await deployment.worker({ handlers: [task.handle(() => ({ ok: 'yes' }) as never)] })
    expect(await producer.waitFor(await producer.enqueue(task, 1))).toMatchObject({
      state: 'failed',
      error: { code: 'RESULT_REFUSED', message: expect.stringContaining('ok:') },
    })
  })

  it('[S10] whose result Postgres refuses fails alone: its neighbours complete', async () => {
    await database.rows(
      'alter table longshore.finished_jobs add constraint no_bad check (result is null or result <> \'"bad"\')',
    )
    const task = defineTask({ name: newName() })
    const producer = deployment.producer()
    const inside = counter()
    const mayEnd = gate()
    await deployment.worker({
      handlers: [
        task.handle(async job => {
          inside.add()
          await mayEnd.opened
          return job.payload
        }),
      ],
    })
    const refs = await producer.enqueueMany(task, ['good', 'bad', 'good', 'good'])
    await inside.reached(4)
    mayEnd.open()
    const ended = await Promise.all(refs.map(ref => producer.waitFor(ref)))
    expect(ended.map(job => job.state)).toEqual(['succeeded', 'failed', 'succeeded', 'succeeded'])
    expect(ended[1]?.error).toMatchObject({
      code: 'RESULT_REFUSED',
      message: expect.stringContaining('no_bad'),
    })
    await database.rows('alter table longshore.finished_jobs drop constraint no_bad')
  })

  it.each([
    ['an Error', new TypeError('broken'), { code: 'HANDLER_FAILED', name: 'TypeError', message: 'broken' }],
    ['a text', 'just text', { name: 'NotAnError', message: expect.stringContaining("'just text'") }],
    ['undefined', undefined, { name: 'NotAnError', message: expect.stringContaining('undefined') }],
    ['an object', { status: 500 }, { name: 'NotAnError', message: expect.stringContaining('status: 500') }],
    ['NUL and half a surrogate', new Error('a\u0000\ud800'), { message: 'a\ufffd\ufffd' }],
    ['a huge message', new Error('x'.repeat(100_000)), { message: expect.stringMatching(/^x{1999}…$/) }],
  ])('[X5] that throws %s fails with a bounded, readable error', async (_, thrown, error) => {
    expect(
      await runOnce(() => {
        throw thrown
      }),
    ).toMatchObject({ state: 'failed', error })
  })

  it('fails with PAYLOAD_INVALID, and without retries, when the stored payload no longer fits the schema', async () => {
    const name = newName()
    const before = defineTask({ name, payload: z.object({ url: z.string() }) })
    const after = defineTask({ name, payload: z.object({ url: z.url() }) })
    const producer = deployment.producer()
    let calls = 0
    await deployment.worker({ handlers: [after.handle(() => void calls++)] })
    expect(await producer.waitFor(await producer.enqueue(before, { url: 'nowhere' }))).toMatchObject({
      state: 'failed',
      attempts: 1,
      error: { code: 'PAYLOAD_INVALID', message: expect.stringContaining('url:') },
    })
    expect(calls).toBe(0)
  })
})

describe('large payloads', () => {
  it('[S9] are read apart from their claim, beside small ones', async () => {
    const task = defineTask({ name: newName() })
    const producer = deployment.producer({ maxPayloadBytes: 4 * 1024 * 1024 })
    await deployment.worker({ handlers: [task.handle(job => String(job.payload).length)] })
    const sizes = [10, 65_534, 65_535, 3_000_000, 20, 2_000_000]
    const refs = []
    for (const size of sizes) refs.push(await producer.enqueue(task, 'x'.repeat(size)))
    const ended = await Promise.all(refs.map(ref => producer.waitFor(ref)))
    expect(ended.map(job => job.state === 'succeeded' && job.result)).toEqual(sizes)
  })
})

describe('a failed attempt', () => {
  it('[X5] is retried until it succeeds; the error of the last failure stays readable meanwhile', async () => {
    const task = defineTask({
      name: newName(),
      retry: { maxAttempts: 3, backoff: { type: 'fixed', delay: '1h' } },
    })
    const producer = deployment.producer()
    const failed = counter()
    await deployment.worker({
      handlers: [
        task.handle(job => {
          if (job.attempt === 3) return job.attempt
          failed.add()
          throw new Error(`attempt ${job.attempt}`)
        }),
      ],
    })
    const ref = await producer.enqueue(task, 1)
    for (const attempt of [1, 2]) {
      await failed.reached(attempt)
      let job = await producer.get(ref)
      while (job?.state !== 'scheduled') job = await producer.get(ref)
      expect(job).toMatchObject({ attempts: attempt, error: { message: `attempt ${attempt}` } })
      expect(job.runAt.getTime() - job.createdAt.getTime()).toBeGreaterThanOrEqual(3_600_000)
      // Do not wait for an hour: move its time, as the passing of time would.
      await database.rows('update longshore.jobs set score = longshore.score(0, now()) where id = $1', [
        ref.id,
      ])
    }
    expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded', attempts: 3, result: 3 })
  })

  it('[X5] is the last one when the attempts are used up', async () => {
    const ended = await runOnce(
      attempt => {
        throw new Error(`attempt ${attempt}`)
      },
      { attempts: 3 },
    )
    expect(ended).toMatchObject({ state: 'failed', attempts: 3, error: { message: 'attempt 3' } })
  })

  it('[X5] ends the job at once when the error is a NonRetryableError', async () => {
    const ended = await runOnce(
      () => {
        throw new NonRetryableError('no such user')
      },
      { attempts: 5 },
    )
    expect(ended).toMatchObject({
      state: 'failed',
      attempts: 1,
      error: { code: 'NOT_RETRYABLE', message: 'no such user' },
    })
  })

  it('[X5] waits as a custom backoff says, and exponentially when that itself fails', async () => {
    const asked: unknown[] = []
    const custom = defineTask({
      name: newName(),
      retry: {
        maxAttempts: 2,
        backoff: (attempt, error) => {
          asked.push(attempt, (error as Error).message)
          return '2h'
        },
      },
    })
    const broken = defineTask({
      name: newName(),
      retry: {
        maxAttempts: 2,
        backoff: () => {
          throw new Error('no idea')
        },
      },
    })
    const producer = deployment.producer()
    const fail = () => {
      throw new Error('it failed')
    }
    await deployment.worker({ handlers: [custom.handle(fail), broken.handle(fail)] })
    const waitOf = async (id: string) => {
      let job = await producer.get(id)
      while (job?.state !== 'scheduled') job = await producer.get(id)
      return job.runAt.getTime() - job.createdAt.getTime()
    }
    expect(await waitOf((await producer.enqueue(custom, 1)).id)).toBeGreaterThanOrEqual(7_200_000)
    expect(asked).toEqual([1, 'it failed'])
    const wait = await waitOf((await producer.enqueue(broken, 1)).id)
    expect(wait).toBeGreaterThanOrEqual(500)
  })
})

describe('a time limit', () => {
  it('[X5] fires the signal; a handler that then stops fails with TIMEOUT and is retried', async () => {
    const reasons: unknown[] = []
    const ended = await runOnce(
      (attempt, signal) => {
        if (attempt === 2) return 'second time lucky'
        return new Promise((_, reject) =>
          signal.addEventListener('abort', () => {
            reasons.push(signal.reason)
            reject(new Error('stopped'))
          }),
        )
      },
      { attempts: 2, timeout: 20 },
    )
    expect(reasons).toEqual([expect.objectContaining({ code: 'TIMEOUT' })])
    expect(ended).toMatchObject({ state: 'succeeded', attempts: 2 })
  })

  it('[X5] ends the attempt of a handler that never returns, and keeps its permit until it does', async () => {
    const task = defineTask({ name: newName(), timeout: 10, retry: { maxAttempts: 1 } })
    const producer = deployment.producer()
    const mayReturn = gate()
    const inside = counter()
    await deployment.worker({
      maxConcurrentTasks: 1,
      abortGrace: 10,
      handlers: [
        task.handle(async () => {
          inside.add()
          await mayReturn.opened
        }),
      ],
    })
    const stuck = await producer.enqueue(task, 1)
    expect(await producer.waitFor(stuck)).toMatchObject({
      state: 'failed',
      error: { code: 'TIMEOUT', message: 'attempt 1 took longer than 10 ms' },
    })
    const next = await producer.enqueue(task, 2)
    expect(await producer.get(next)).toMatchObject({ state: 'ready' })
    expect(inside.count).toBe(1)
    mayReturn.open()
    await producer.waitFor(next)
    expect(inside.count).toBe(2)
  })

  it('[X5] accepts the work of a handler that finishes after the signal, within the grace', async () => {
    const ended = await runOnce(
      (_, signal) => new Promise(resolve => signal.addEventListener('abort', () => resolve('late but done'))),
      { timeout: 10 },
    )
    expect(ended).toMatchObject({ state: 'succeeded', result: 'late but done' })
  })
})

describe('waitFor', () => {
  it('[X5] waits for a job that is enqueued later, and tells many waiters', async () => {
    const task = defineTask({ name: newName() })
    const producer = deployment.producer()
    const other = deployment.producer()
    const id = '01900000-0000-7000-8000-000000000001'
    const waits = [producer.waitFor(id), producer.waitFor(id), other.waitFor(id)]
    await deployment.worker({ handlers: [task.handle(() => 'here')] })
    await producer.enqueue(task, 1, { id })
    for (const wait of waits) expect(await wait).toMatchObject({ state: 'succeeded', result: 'here' })
    await eventually(
      'nobody waits',
      async () => (await database.rows('select from longshore.awaited')).length === 0,
    )
  })

  it('[X5] [S16] rejects with WAIT_TIMEOUT that says what keeps the job, and stops when its signal fires', async () => {
    const task = defineTask({ name: newName() })
    const producer = deployment.producer()
    const ref = await producer.enqueue(task, 1)
    await expect(producer.waitFor(ref, { timeout: 20 })).rejects.toMatchObject({
      code: 'WAIT_TIMEOUT',
      message: expect.stringMatching(
        `^job ${ref.id} has not ended after 20 ms: it is ready: no .*: start one with a handler for task ${task.name},`,
      ),
    })
    await expect(producer.waitFor('01900000-0000-7000-8000-000000000002', { timeout: 1 })).rejects.toThrow(
      'no job with this id is known',
    )
    const controller = new AbortController()
    const wait = producer.waitFor(ref, { signal: controller.signal })
    controller.abort(new LongshoreError('WORKER_STOPPED', 'never mind'))
    await expect(wait).rejects.toThrow('never mind')
  })

  it('rejects when the producer is closed meanwhile, and refuses to work afterwards', async () => {
    const task = defineTask({ name: newName() })
    const producer = deployment.producer()
    const ref = await producer.enqueue(task, 1)
    const wait = producer.waitFor(ref)
    wait.catch(() => undefined)
    await producer.get(ref)
    await new Promise(resolve => setImmediate(resolve))
    while ((await database.rows('select from longshore.awaited')).length === 0);
    await producer.close()
    await expect(wait).rejects.toMatchObject({ code: 'PRODUCER_CLOSED' })
    await expect(producer.enqueue(task, 1)).rejects.toMatchObject({ code: 'PRODUCER_CLOSED' })
  })
})
