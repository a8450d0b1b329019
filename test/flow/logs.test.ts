import { describe, expect, it } from 'vitest'
import { defineTask, type JobContext, type LogLine } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { eventually, gate } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
let names = 0
const newTask = (attempts = 1) =>
  defineTask<unknown>({
    name: `says-${++names}`,
    retry: { maxAttempts: attempts, backoff: { type: 'fixed', delay: 0 } },
  })

const messages = (lines: readonly LogLine[]) => lines.map(line => line.message)

/** A job whose handler is inside until the gate opens. */
async function inside(say: (ctx: JobContext) => void) {
  const task = newTask()
  const entered = gate<JobContext>()
  const mayReturn = gate()
  const producer = deployment.producer()
  const worker = await deployment.worker({
    handlers: [
      task.handle(async (_, ctx) => {
        say(ctx)
        entered.open(ctx)
        await mayReturn.opened
      }),
    ],
  })
  const ref = await producer.enqueue(task, 1)
  const ctx = await entered.opened
  return { producer, worker, ref, ctx, mayReturn }
}

describe('the log of a job', () => {
  it('[S8] is read while its handler is still inside, with levels, data and progress', async () => {
    const { producer, worker, ref, mayReturn } = await inside(ctx => {
      ctx.log('begun', { mails: 3, nested: [1, { a: null }] })
      ctx.log.debug('looked')
      const { log, progress } = ctx
      log.warn('slow')
      log.error('bounced')
      progress(1, 7)
      progress(2, 7)
    })
    await eventually('the lines are there', async () => (await producer.getLogs(ref)).length === 4)
    const lines = await producer.getLogs(ref)
    expect(lines).toMatchObject([
      { attempt: 1, level: 'info', message: 'begun', data: { mails: 3, nested: [1, { a: null }] } },
      { attempt: 1, level: 'debug', message: 'looked', data: null },
      { attempt: 1, level: 'warn', message: 'slow' },
      { attempt: 1, level: 'error', message: 'bounced' },
    ])
    expect(await producer.getProgress(ref)).toMatchObject({ done: 2, total: 7, attempt: 1 })
    expect(await producer.get(ref)).toMatchObject({ state: 'running' })
    mayReturn.open()
    await producer.waitFor(ref)
    expect(worker.logCounts).toMatchObject({ written: 4, cut: 0 })
  })

  it('[S8] is read in pages', async () => {
    const { producer, ref, mayReturn } = await inside(ctx => {
      for (let n = 1; n <= 5; n++) ctx.log(`line ${n}`)
    })
    mayReturn.open()
    await eventually('the lines are there', async () => (await producer.getLogs(ref)).length === 5)
    const first = await producer.getLogs(ref, { limit: 2 })
    expect(messages(first)).toEqual(['line 1', 'line 2'])
    const after = first.at(-1)?.id as string
    expect(messages(await producer.getLogs(ref, { after, limit: 2 }))).toEqual(['line 3', 'line 4'])
    expect(messages(await producer.getLogs(ref.id, { after }))).toEqual(['line 3', 'line 4', 'line 5'])
    for (const wrong of [{ after: 'last' }, { limit: 0 }, { limit: 10_001 }, { from: 1 }])
      await expect(producer.getLogs(ref, wrong as object)).rejects.toMatchObject({ code: 'CONFIG_INVALID' })
  })

  it('[S8] is followed in order over attempts, and the following ends with the job', async () => {
    const task = newTask(3)
    const steps = [gate(), gate(), gate()]
    const producer = deployment.producer()
    await deployment.worker({
      handlers: [
        task.handle(async ({ attempt }, ctx) => {
          ctx.log('begun')
          await steps[attempt - 1]?.opened
          ctx.log('ends')
          if (attempt < 3) throw new Error('again')
        }),
      ],
    })
    const ref = await producer.enqueue(task, 1)
    const seen: string[] = []
    for await (const { attempt, message } of producer.followLogs(ref)) {
      seen.push(`${attempt} ${message}`)
      if (message === 'begun') steps[attempt - 1]?.open() // so it was seen while the handler was inside
    }
    expect(seen).toEqual(['1 begun', '1 ends', '2 begun', '2 ends', '3 begun', '3 ends'])
    expect(await producer.get(ref)).toMatchObject({ state: 'succeeded' })
    expect(await database.rows('select from longshore.awaited')).toEqual([])
  })

  it('[S8] rings for those who follow, and for nobody else', async () => {
    const { producer, ref, ctx, mayReturn } = await inside(ctx => ctx.log('first'))
    await eventually('it is there', async () => (await producer.getLogs(ref)).length === 1)
    const listener = await database.connect()
    const rung: string[] = []
    listener.on('notification', ({ payload }) => rung.push(payload ?? ''))
    await listener.query(
      'listen "\\"longshore\\".waiter_test1"; listen "\\"longshore\\".waiter_test2"'.replaceAll('\\"', '""'),
    )
    const wait = 'insert into longshore.awaited values ($1, $2, now() + interval $$1 minute$$, $3)'
    await database.rows(wait, [ref.id, 'test1', false])
    const say = async (message: string) => {
      ctx.log(message)
      await eventually('it is there', async () => messages(await producer.getLogs(ref)).includes(message))
      await listener.query('select 1') // what was notified before has come
    }
    await say('second')
    expect(rung).toEqual([])
    await database.rows(wait, [ref.id, 'test2', true])
    await say('third')
    // Others see a commit a moment before it has notified.
    await eventually('the one that follows is rung', async () => rung.length > 0)
    expect(rung).toEqual([ref.id])
    mayReturn.open()
    await producer.waitFor(ref)
  })

  it('[S8] shows late lines of an earlier run to those who follow', async () => {
    const { producer, ref, ctx, mayReturn } = await inside(ctx => ctx.log('now'))
    const lines = producer.followLogs(ref)[Symbol.asyncIterator]()
    expect((await lines.next()).value).toMatchObject({ message: 'now' })
    // As from a worker that lost its lease and is slow.
    const [worker] = await database.rows<{ id: number }>(
      'insert into longshore.past_workers (id) values (1000000) returning id',
    )
    await database.rows('insert into longshore.past_runs values ($1, 0, $2)', [ref.id, worker?.id])
    await database.rows(
      `select longshore.write_logs(json_build_array(json_build_object(
         'job', $1::uuid, 'lease', 0, 'attempt', 1, 'seq', 1, 'age', 0, 'level', 'info', 'message', 'stale')), '[]', $2)`,
      [ref.id, worker?.id],
    )
    expect((await lines.next()).value).toMatchObject({ message: 'stale' })
    ctx.log('last')
    expect((await lines.next()).value).toMatchObject({ message: 'last' })
    mayReturn.open()
    expect(await lines.next()).toMatchObject({ done: true })
  })

  it('[S8] stops being followed by signal, by close, and at once when there is no such job', async () => {
    const { producer, ref, mayReturn } = await inside(ctx => ctx.log('one'))
    const stop = new AbortController()
    const follow = async (from = producer) => {
      for await (const { message } of from.followLogs(ref, { signal: stop.signal }))
        if (message === 'one') stop.abort(new Error('enough'))
    }
    await expect(follow()).rejects.toThrow('enough')
    const other = deployment.producer()
    const lines = other.followLogs(ref)[Symbol.asyncIterator]()
    await lines.next()
    const next = expect(lines.next()).rejects.toMatchObject({ code: 'PRODUCER_CLOSED' })
    await other.close()
    await next
    const unknown = producer.followLogs('0198c0de-0000-7000-8000-000000000000')[Symbol.asyncIterator]()
    await expect(unknown.next()).rejects.toMatchObject({ code: 'JOB_NOT_FOUND' })
    mayReturn.open()
    await producer.waitFor(ref)
  })

  it('[S8] is bounded: a run writes so many lines, then one that tells how many are missing', async () => {
    const task = newTask()
    const producer = deployment.producer()
    const worker = await deployment.worker({
      maxLogLines: 3,
      handlers: [
        task.handle((_, ctx) => {
          for (let n = 1; n <= 10; n++) ctx.log(`line ${n}`)
        }),
      ],
    })
    const ref = await producer.enqueue(task, 1)
    expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded' })
    await eventually('the lines are there', async () => (await producer.getLogs(ref)).length === 4)
    expect(await producer.getLogs(ref)).toMatchObject([
      { message: 'line 1' },
      { message: 'line 2' },
      { message: 'line 3' },
      {
        level: 'warn',
        message: '7 lines were dropped here: a run may write 3 (maxLogLines)',
        data: { dropped: 7 },
      },
    ])
    expect(worker.logCounts).toMatchObject({ written: 4, dropped: { run: 7 } })
  })

  it('[S8] takes hostile data, cut or in words, and the job succeeds', async () => {
    const circular: Record<string, unknown> = { name: 'me' }
    circular['self'] = circular
    let deep: unknown = 'bottom'
    for (let n = 0; n < 10_000; n++) deep = [deep]
    const fail = () => {
      throw Object.create(null)
    }
    const error = Object.assign(new Error('inner\u0000'), { code: 'E_INNER' })
    const hostile: unknown[] = [
      circular,
      10n ** 30n,
      'x'.repeat(1_000_000),
      Array.from({ length: 100_000 }, (_, n) => ({ n })),
      'a\u0000b\ud800c',
      { 'a\u0000b': '\udc00', __proto__: 1 },
      deep,
      new Map<unknown, unknown>([[{}, new Set([1, Number.NaN])]]),
      new Proxy({}, { get: fail, ownKeys: fail, getPrototypeOf: fail }),
      { get a() { return fail() } }, // biome-ignore format: one line
      { toJSON: fail },
      { toJSON: () => circular },
      () => 1,
      Symbol('s'),
      error,
      new Date(Number.NaN),
      Buffer.alloc(1_000_000),
      undefined,
      null,
    ]
    const task = newTask()
    const producer = deployment.producer()
    const worker = await deployment.worker({
      handlers: [
        task.handle((_, ctx) => {
          for (const one of hostile) {
            ctx.log('data', one)
            ctx.log(one as string)
          }
          ctx.progress(Number.NaN, 1)
          ctx.progress('1' as unknown as number)
          ctx.progress(5, fail as unknown as number)
        }),
      ],
    })
    const ref = await producer.enqueue(task, 1)
    expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded', attempts: 1 })
    await eventually(
      'all lines are there',
      async () => (await producer.getLogs(ref)).length === 2 * hostile.length,
    )
    const lines = await producer.getLogs(ref)
    expect(lines[0]?.data).toEqual({ name: 'me', self: '[circular]' })
    expect(lines[2 * hostile.indexOf(error)]?.data).toMatchObject({
      name: 'Error',
      message: 'inner\ufffd',
      code: 'E_INNER',
    })
    for (const { message, data } of lines) {
      expect(message.length).toBeLessThanOrEqual(4000)
      expect(JSON.stringify(data).length).toBeLessThan(50_000)
    }
    expect(worker.logCounts.cut).toBeGreaterThan(hostile.length)
    expect(await producer.getProgress(ref)).toMatchObject({ done: 5, total: null })
  })

  it('[S8] ignores and counts what is said after the run has ended', async () => {
    const { producer, worker, ref, ctx, mayReturn } = await inside(ctx => ctx.log('in time'))
    mayReturn.open()
    await producer.waitFor(ref)
    ctx.log('too late')
    ctx.progress(1)
    expect(worker.logCounts.dropped.late).toBe(1)
    const silent = await inside(() => undefined)
    silent.mayReturn.open()
    await silent.producer.waitFor(silent.ref)
    silent.ctx.log('too late, and the first')
    expect(silent.worker.logCounts.dropped.late).toBe(1)
    await worker.stop()
    await silent.worker.stop()
    expect(messages(await producer.getLogs(ref))).toEqual(['in time'])
    expect(await producer.getLogs(silent.ref)).toEqual([])
    expect(await producer.getProgress(ref)).toBeUndefined()
  })

  it('[S8] has the lines of a handler that goes on after it has completed its job', async () => {
    const task = newTask()
    const producer = deployment.producer()
    await deployment.worker({
      handlers: [
        task.handle(async (_, ctx) => {
          ctx.log('before')
          await ctx.complete(() => 1)
          ctx.log('after')
        }),
      ],
    })
    const ref = await producer.enqueue(task, 1)
    const seen: string[] = []
    for await (const { message } of producer.followLogs(ref)) seen.push(message)
    expect(seen).toEqual(['before', 'after'])
  })

  it('[S8] is flushed by a stop', async () => {
    const task = newTask()
    const producer = deployment.producer()
    const said = Array.from({ length: 9000 }, (_, n) => `${n}`)
    const entered = gate()
    const worker = await deployment.worker({
      maxLogLines: said.length,
      handlers: [
        task.handle((_, ctx) => {
          for (const line of said) ctx.log(line) // more than a few sends
          entered.open()
        }),
      ],
    })
    const ref = await producer.enqueue(task, 1)
    await entered.opened
    await worker.stop()
    expect(messages(await producer.getLogs(ref, { limit: 10_000 }))).toEqual(said)
  })
})
