import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createWorker, defineTask, type FinishedJob, type TaskOptions } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { eventually } from '../support/signals.ts'

interface Work {
  work: string
  value?: unknown
  /** A file that the handler makes when it is inside. */
  inside?: string
  /** A file that ends it. */
  end?: string
}

const database = useDatabase()
const deployment = useDeployment(database)
const module = new URL('../support/threads/jobs.mjs', import.meta.url)
const now = { type: 'fixed', delay: 0 } as const
const inThread = (options: Omit<TaskOptions<Work>, 'name'> = {}) =>
  defineTask<Work>({ name: 'in-thread', retry: { maxAttempts: 1 }, ...options })
const inline = defineTask<number>({ name: 'inline' })

let folder = ''
let files = 0
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'longshore-threads-'))
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))
/** Threads share nothing with the test but files. */
const newFile = () => join(folder, String(++files))
const made = (file: string) => eventually(`${file} is made`, async () => existsSync(file))
const threadIn = (file: string) => Number(readFileSync(file, 'utf8'))
const resultOf = (job: FinishedJob) => (job.state === 'succeeded' ? job.result : job)

async function begin(
  task = inThread(),
  options: {
    maxThreads?: number
    threadMemoryMb?: number
    abortGrace?: number
    maxConcurrentTasks?: number
  } = {},
) {
  const producer = deployment.producer({ tasks: [task, inline] })
  const worker = await deployment.worker({
    maxThreads: 1,
    ...options,
    handlers: [task.handle({ isolate: 'thread', module }), inline.handle(() => undefined)],
  })
  const enqueue = (work: string, more: Omit<Work, 'work'> = {}) => producer.enqueue(task, { work, ...more })
  const run = async (work: string, more: Omit<Work, 'work'> = {}) =>
    producer.waitFor(await enqueue(work, more), { timeout: '30s' })
  return { producer, worker, enqueue, run }
}

describe('what a handler in a thread says', () => {
  it('[S8] is logged by the worker, in order, and what is said too late is counted', async () => {
    const { producer, worker, run } = await begin()
    const { id } = await run('talk')
    const lines = producer.followLogs(id)
    const said: unknown[] = []
    for await (const { level, message, data } of lines) said.push([level, message, data])
    expect(said).toMatchObject([
      ['info', 'begun', { n: 1 }],
      ['warn', 'odd', expect.stringContaining('Function')],
    ])
    expect(await producer.getProgress(id)).toMatchObject({ done: 2, total: 2 })
    await eventually('the last word is counted', async () => worker.logCounts.dropped.late === 1)
  })
})

describe('a handler in a thread', () => {
  it('is given its job, and returns its result', async () => {
    const task = inThread({ retry: { maxAttempts: 4 } })
    const { producer } = await begin(task)
    const ref = await producer.enqueue(task, { work: 'echo', value: { deep: [1, null] } }, { priority: 9 })
    const job = await producer.waitFor(ref)
    expect(resultOf(job)).toEqual({
      id: ref.id,
      task: 'in-thread',
      payload: { deep: [1, null] },
      attempt: 1,
      maxAttempts: 4,
      priority: 9,
      createdAt: job.createdAt.toISOString(),
      isDate: true,
    })
  })

  it('is given what the schema makes of a large payload', async () => {
    const task = defineTask({
      name: 'in-thread',
      payload: z.object({ work: z.string(), value: z.string().transform(text => new Set([text.length])) }),
    })
    const { producer } = await begin(task as never)
    const ref = await producer.enqueue(task, { work: 'echo', value: 'x'.repeat(100_000) })
    expect(await producer.waitFor(ref)).toMatchObject({
      state: 'failed',
      error: { code: 'RESULT_REFUSED', message: expect.stringContaining('payload is a Set') },
    })
  })

  it('asks for what it ran after, and for its group', async () => {
    const [task, parent] = [inThread(), defineTask<number, number>({ name: 'parent' })]
    const producer = deployment.producer({ tasks: [task, parent] })
    await deployment.worker({
      handlers: [task.handle({ isolate: 'thread', module }), parent.handle(({ payload }) => payload * 2)],
    })
    const group = producer.group()
    const parents = [group.add(parent, 1), group.add(parent, 2)]
    const child = group.add(task, { work: 'relatives' }, { after: parents })
    const submitted = await group.submit()
    const job = await producer.waitFor(await child)
    expect(resultOf(job)).toEqual({
      group: submitted.id,
      all: 2,
      of: [
        { state: 'succeeded', result: 2 },
        { state: 'succeeded', result: 4 },
      ],
      each: ['parent', 'parent'],
    })
  })

  it('cannot complete its job in a transaction, and is told why', async () => {
    const { run } = await begin()
    expect(await run('complete')).toMatchObject({
      state: 'failed',
      error: {
        code: 'TASK_INVALID',
        message: expect.stringContaining('ctx.complete cannot be used in a thread'),
      },
    })
  })

  it('[W1] leaves the event loop free: others run while every thread is busy', async () => {
    const { producer, enqueue } = await begin(inThread(), { maxThreads: 2 })
    const end = newFile()
    const inside = [newFile(), newFile()]
    const busy = await Promise.all(inside.map(file => enqueue('spin', { inside: file, end })))
    await Promise.all(inside.map(made))
    expect(await producer.waitFor(await producer.enqueue(inline, 1))).toMatchObject({ state: 'succeeded' })
    writeFileSync(end, '')
    const ended = await Promise.all(busy.map(ref => producer.waitFor(ref)))
    expect(new Set(ended.map(resultOf)).size).toBe(2)
  })

  it('[W3] claims no more than two for each thread when all handlers are in threads', async () => {
    const task = inThread()
    const producer = deployment.producer({ tasks: [task] })
    await deployment.worker({ maxThreads: 1, handlers: [task.handle({ isolate: 'thread', module })] })
    const files = Array.from({ length: 5 }, () => ({ inside: newFile(), end: newFile() }))
    const refs = await producer.enqueueMany(
      task,
      files.map(file => ({ work: 'spin', ...file })),
    )
    let most = 0
    for (const [at, { inside, end }] of files.entries()) {
      await made(inside)
      const jobs = await Promise.all(refs.slice(at).map(({ id }) => producer.get(id)))
      most = Math.max(most, jobs.filter(job => job?.state === 'running').length)
      writeFileSync(end, '')
    }
    await Promise.all(refs.map(ref => producer.waitFor(ref)))
    expect(most).toBe(2)
  })

  it('shares its thread with the jobs that come after, one at a time, and at most maxThreads run', async () => {
    const { run, enqueue, producer } = await begin()
    const end = newFile()
    const [first, second] = [newFile(), newFile()]
    const refs = [
      await enqueue('spin', { inside: first, end }),
      await enqueue('spin', { inside: second, end }),
    ]
    await made(first)
    await producer.waitFor(await producer.enqueue(inline, 1))
    expect(existsSync(second)).toBe(false)
    writeFileSync(end, '')
    const ended = await Promise.all(refs.map(ref => producer.waitFor(ref)))
    expect(new Set([...ended.map(resultOf), resultOf(await run('thread'))]).size).toBe(1)
  })
})

describe('what a handler throws in a thread', () => {
  it('keeps its name, message, stack, code and cause', async () => {
    const seen: unknown[] = []
    const backoff = (_: number, error: unknown) => {
      seen.push(error)
      return 0
    }
    const { run } = await begin(inThread({ retry: { maxAttempts: 2, backoff } }))
    expect(await run('throwError')).toMatchObject({
      state: 'failed',
      attempts: 2,
      error: {
        code: 'HANDLER_FAILED',
        name: 'OddError',
        message: 'odd',
        stack: expect.stringContaining('jobs.mjs'),
      },
    })
    expect(seen).toHaveLength(1)
    expect(seen[0]).toBeInstanceOf(Error)
    expect(seen[0]).toMatchObject({ code: 'E_ODD', retryAfterMs: 7 })
    expect((seen[0] as Error).cause).toMatchObject({ name: 'TypeError', message: 'deeper' })
  })

  it('[X29] keeps its causes, their codes and stacks', async () => {
    const { run } = await begin()
    const stack = expect.stringContaining('jobs.mjs')
    expect(await run('throwCauses')).toMatchObject({
      error: {
        name: 'TypeError',
        message: 'outer',
        cause: {
          name: 'AggregateError',
          message: 'several',
          stack,
          errors: [
            { name: 'Error', message: 'refused', code: 'ECONNREFUSED', stack },
            { message: 'circle', stack, cause: { name: 'LeftOut' } },
            { message: 'getter', stack },
            { name: 'NotAnError', message: "'text'" },
          ],
        },
      },
    })
    expect(await run('throwLater')).toMatchObject({
      error: { code: 'THREAD_CRASHED', stack, cause: { message: 'nobody catches this', stack } },
    })
  })

  it('is not tried again when it is a NonRetryableError', async () => {
    const { run } = await begin(inThread({ retry: { maxAttempts: 5, backoff: now } }))
    expect(await run('throwFinal')).toMatchObject({
      state: 'failed',
      attempts: 1,
      error: { code: 'NOT_RETRYABLE', name: 'NonRetryableError', message: 'never again' },
    })
  })

  it('may be anything', async () => {
    const { run } = await begin()
    expect(await run('throwText')).toMatchObject({
      error: {
        code: 'HANDLER_FAILED',
        message: "the handler threw something that is not an Error: 'a text'",
      },
    })
    expect(await run('throwCloneError')).toMatchObject({
      error: { code: 'HANDLER_FAILED', message: expect.stringContaining('could not be cloned') },
    })
    expect(await run('throwHostile')).toMatchObject({ state: 'failed', error: { code: 'HANDLER_FAILED' } })
  })

  it.each([
    ['cannot be copied', 'returnFunction', 'cannot be handed over by its thread'],
    ['cannot be stored', 'returnMap', 'is a Map'],
  ])('a result that %s fails the job', async (_, work, message) => {
    const { run } = await begin(inThread({ retry: { maxAttempts: 5, backoff: now } }))
    expect(await run(work)).toMatchObject({
      state: 'failed',
      attempts: 1,
      error: { code: 'RESULT_REFUSED', message: expect.stringContaining(message) },
    })
  })

  it('a payload that cannot be copied fails the job', async () => {
    const task = defineTask({
      name: 'in-thread',
      payload: z.object({ work: z.string() }).transform(work => ({ ...work, value: () => undefined })),
    })
    const { producer } = await begin(task as never)
    const ref = await producer.enqueue(task, { work: 'echo' })
    expect(await producer.waitFor(ref)).toMatchObject({
      state: 'failed',
      error: { code: 'PAYLOAD_INVALID', message: expect.stringContaining('cannot be handed to a thread') },
    })
  })
})

describe('a thread that dies', () => {
  it.each([
    ['process.exit', 'exit', 'was ended by process.exit(3)'],
    ['an uncaught exception', 'throwLater', 'died of an uncaught exception: nobody catches this'],
    ['an unhandled rejection', 'reject', 'died of an unhandled rejection: nobody handles this'],
    ['its memory', 'fill', 'ran out of its memory of 32 MB (threadMemoryMb)'],
  ])('of %s costs one attempt of its own job only', async (_, work, message) => {
    const { producer, enqueue, run } = await begin(inThread({ retry: { maxAttempts: 2, backoff: now } }), {
      maxThreads: 2,
      threadMemoryMb: 32,
    })
    const [inside, end] = [newFile(), newFile()]
    const beside = await enqueue('spin', { inside, end })
    await made(inside)
    const died = await run(work)
    expect(died).toMatchObject({
      state: 'failed',
      attempts: 2,
      error: { code: 'THREAD_CRASHED', message: `its thread ${message}` },
    })
    expect(await run('thread')).toMatchObject({ state: 'succeeded' })
    writeFileSync(end, '')
    expect(await producer.waitFor(beside)).toMatchObject({ state: 'succeeded', attempts: 1 })
  })
})

describe('the time limit of a handler in a thread', () => {
  it('ends an endless loop, its thread is replaced, and the job is tried again', async () => {
    const task = inThread({ timeout: 200, retry: { maxAttempts: 2, backoff: now } })
    const { producer, run, enqueue } = await begin(task, { abortGrace: 50 })
    const before = resultOf(await run('thread'))
    const ended = await producer.waitFor(await enqueue('spinFirst'))
    expect(ended).toMatchObject({ state: 'succeeded', attempts: 2 })
    expect(resultOf(ended)).not.toBe(before)
    expect(await run('spinForEver', { inside: newFile() })).toMatchObject({
      state: 'failed',
      attempts: 2,
      error: { code: 'TIMEOUT' },
    })
  })

  it('is seen by a loop that never awaits, which goes on in its thread', async () => {
    const { run } = await begin(inThread({ timeout: 100 }), { abortGrace: 60_000 })
    const before = resultOf(await run('thread'))
    expect(resultOf(await run('loop', { inside: newFile() }))).toBe('TIMEOUT')
    expect(resultOf(await run('thread'))).toBe(before)
  })

  it('begins when the job has its thread', async () => {
    const [hold, task] = [defineTask<Work>({ name: 'hold' }), inThread({ timeout: 100 })]
    const producer = deployment.producer({ tasks: [hold, task, inline] })
    await deployment.worker({
      maxThreads: 1,
      handlers: [
        hold.handle({ isolate: 'thread', module }),
        task.handle({ isolate: 'thread', module }),
        inline.handle(() => undefined),
      ],
    })
    const [inside, end] = [newFile(), newFile()]
    await producer.enqueue(hold, { work: 'spin', inside, end })
    await made(inside)
    const waits = await producer.enqueue(task, { work: 'thread' })
    await eventually('it is claimed', async () => (await producer.get(waits))?.state === 'running')
    await producer.waitFor(await producer.enqueue(inline, 1, { delay: 300 })) // longer than its time limit
    expect(await producer.get(waits)).toMatchObject({ state: 'running' })
    writeFileSync(end, '')
    expect(await producer.waitFor(waits)).toMatchObject({ state: 'succeeded', attempts: 1 })
  })
})

describe('a cancel', () => {
  it('[S13] ends a job without a time limit in an endless loop', async () => {
    const { producer, enqueue, run } = await begin(inThread(), { abortGrace: 50 })
    const inside = newFile()
    const ref = await enqueue('spinForEver', { inside })
    await made(inside)
    await producer.cancel(ref)
    expect(await producer.waitFor(ref)).toMatchObject({ state: 'cancelled' })
    expect(resultOf(await run('thread'))).not.toBe(threadIn(inside))
  })

  it('[S13] reaches a handler that looks at its signal, and its thread goes on', async () => {
    const { producer, enqueue, run } = await begin(inThread(), { abortGrace: 60_000 })
    const [inside, end] = [newFile(), newFile()]
    const ref = await enqueue('poll', { inside, end })
    await made(inside)
    await producer.cancel(ref)
    await made(end)
    expect(await producer.waitFor(ref)).toMatchObject({ state: 'cancelled' })
    expect(resultOf(await run('thread'))).toBe(threadIn(inside))
  })

  it('[S13] takes back a job that waits for a thread, and its permit is free', async () => {
    const { producer, enqueue, run } = await begin(inThread(), { maxConcurrentTasks: 2 })
    const [inside, end, never] = [newFile(), newFile(), newFile()]
    const first = await enqueue('spin', { inside, end })
    await made(inside)
    const waits = await enqueue('spin', { inside: never, end })
    await eventually('it is claimed', async () => (await producer.get(waits))?.state === 'running')
    await producer.cancel(waits)
    expect(await producer.waitFor(waits)).toMatchObject({ state: 'cancelled' })
    expect(await producer.waitFor(await producer.enqueue(inline, 1))).toMatchObject({ state: 'succeeded' })
    writeFileSync(end, '')
    expect(await producer.waitFor(first)).toMatchObject({ state: 'succeeded' })
    expect(await run('thread')).toMatchObject({ state: 'succeeded' })
    expect(existsSync(never)).toBe(false)
  })
})

describe('a worker that stops', () => {
  it('[W16] gives back at once what waits for a thread, and lets the others end', async () => {
    const { producer, worker, enqueue } = await begin()
    const [inside, end, never] = [newFile(), newFile(), newFile()]
    const running = await enqueue('spin', { inside, end })
    await made(inside)
    const waits = await enqueue('spin', { inside: never, end })
    await eventually('it is claimed', async () => (await producer.get(waits))?.state === 'running')
    const stopped = worker.stop({ deadline: '30s' })
    await eventually('it is given back', async () => (await producer.get(waits))?.state === 'ready')
    writeFileSync(end, '')
    await stopped
    expect(await producer.get(waits)).toMatchObject({ state: 'ready', attempts: 0 })
    expect(await producer.get(running)).toMatchObject({ state: 'succeeded' })
    expect(existsSync(never)).toBe(false)
  })

  it('[W16] ends threads that do not stop by the deadline, and gives their jobs back with no attempt used', async () => {
    const { producer, worker, enqueue } = await begin(inThread(), { abortGrace: 50 })
    const inside = newFile()
    const ref = await enqueue('spinForEver', { inside })
    await made(inside)
    await worker.stop({ deadline: 0 })
    expect(await producer.get(ref)).toMatchObject({ state: 'ready', attempts: 0 })
  })
})

describe('a module', () => {
  const start = (file: string) =>
    createWorker({
      postgres: database.urlOf('worker'),
      handlers: [inThread().handle({ isolate: 'thread', module: new URL(file, module) })],
    }).start()

  it('is refused at the start when it is missing, or has no handler', async () => {
    await expect(start('missing.mjs')).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringMatching(/^task in-thread: .*missing\.mjs.*Cannot find module/),
    })
    await expect(start('no-handler.mjs')).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringMatching(/no-handler\.mjs.*export default async/),
    })
    expect(await database.rows('select from longshore.workers')).toEqual([])
  })

  it.each([
    ['a relative path', { isolate: 'thread', module: './jobs.mjs' }, /must be a file URL/],
    ['another kind of isolation', { isolate: 'process', module }, /isolate must be one of thread/],
    ['an unknown option', { isolate: 'thread', modul: module }, /unknown option "modul"/],
    ['no options at all', undefined, /takes the function that does the work, or/],
  ])('is refused with %s', (_, options, message) => {
    expect(() => inThread().handle(options as never)).toThrow(message)
  })
})
