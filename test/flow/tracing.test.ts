/** Spans as an exporter gets them, from real producers and workers. */
import { context, createTraceState, SpanKind, SpanStatusCode, TraceFlags, trace } from '@opentelemetry/api'
import {
  AlwaysOffSampler,
  InMemorySpanExporter,
  NodeTracerProvider,
  ParentBasedSampler,
  type ReadableSpan,
  SimpleSpanProcessor,
  type SpanProcessor,
} from '@opentelemetry/sdk-trace-node'
import { afterEach, describe, expect, it } from 'vitest'
import { defineTask, LongshoreError, type Task } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { counter, eventually, gate } from '../support/signals.ts'
import { spawnScript } from '../support/spawn-cli.ts'

const database = useDatabase()
const deployment = useDeployment(database)
let names = 0
const newTask = (attempts = 1): Task<unknown> =>
  defineTask({
    name: `task-${++names}`,
    retry: { maxAttempts: attempts, backoff: { type: 'fixed', delay: 0 } },
  })

let provider: NodeTracerProvider | undefined
let exporter = new InMemorySpanExporter()

/** From here on this process traces. */
function beginTracing(options: { isSampled?: boolean; processors?: SpanProcessor[] } = {}) {
  const { isSampled = true, processors = [] } = options
  exporter = new InMemorySpanExporter() // one that was shut down takes no more
  provider = new NodeTracerProvider({
    spanProcessors: [new SimpleSpanProcessor(exporter), ...processors],
    ...(isSampled ? {} : { sampler: new ParentBasedSampler({ root: new AlwaysOffSampler() }) }),
  })
  provider.register()
}

afterEach(async () => {
  trace.disable()
  context.disable()
  await provider?.shutdown()
  provider = undefined
  exporter = new InMemorySpanExporter()
})

const spans = (name: string) => exporter.getFinishedSpans().filter(span => span.name === name)

/** The first span of a name; it ends a moment after the job that it tells of. */
async function spanOf(name: string): Promise<ReadableSpan> {
  await eventually(`there is a span ${name}`, async () => spans(name).length > 0)
  return spans(name)[0] as ReadableSpan
}

const ms = ([seconds, nanos]: [number, number]) => seconds * 1000 + nanos / 1e6
const stored = async () =>
  (await database.rows<{ trace: string | null }>('select trace from longshore.jobs order by id')).map(
    row => row.trace,
  )
/** Run `work` inside a span of the user's own. */
const inSpan = <T>(name: string, work: () => Promise<T>): Promise<T> =>
  trace.getTracer('user').startActiveSpan(name, async span => {
    try {
      return await work()
    } finally {
      span.end()
    }
  })

describe('a trace', () => {
  it('[X8] goes from who enqueues through the job into the handler and what that does', async () => {
    beginTracing()
    const task = newTask()
    const producer = deployment.producer()
    const job = await inSpan('request', () => producer.enqueue(task, {}))
    const { id } = await startWorker(task, () => inSpan('inside', async () => undefined))
    await producer.waitFor(job)

    const [request, enqueue, dispatch, run, inside] = [
      await spanOf('request'),
      await spanOf(`enqueue ${task.name}`),
      await spanOf(`dispatch ${task.name}`),
      await spanOf(`run ${task.name}`),
      await spanOf('inside'),
    ]
    for (const span of [enqueue, dispatch, run, inside])
      expect(span.spanContext().traceId).toBe(request.spanContext().traceId)
    expect(enqueue.parentSpanContext?.spanId).toBe(request.spanContext().spanId)
    expect(dispatch.parentSpanContext?.spanId).toBe(enqueue.spanContext().spanId)
    expect(run.parentSpanContext?.spanId).toBe(enqueue.spanContext().spanId)
    expect(inside.parentSpanContext?.spanId).toBe(run.spanContext().spanId)
    const about = {
      'messaging.system': 'longshore',
      'messaging.destination.name': 'default',
      'messaging.message.id': job.id,
      'longshore.task': task.name,
    }
    expect(enqueue.kind).toBe(SpanKind.PRODUCER)
    expect(enqueue.attributes).toEqual({
      ...about,
      'messaging.operation.name': 'enqueue',
      'messaging.operation.type': 'send',
    })
    const ofRun = { ...about, 'longshore.attempt': 1, 'longshore.worker.id': id }
    expect(dispatch.attributes).toEqual(ofRun)
    expect(run.kind).toBe(SpanKind.CONSUMER)
    expect(run.attributes).toEqual({
      ...ofRun,
      'messaging.operation.name': 'run',
      'messaging.operation.type': 'process',
      'longshore.outcome': 'succeeded',
    })
    expect(run.links).toEqual([])
    expect(run.status.code).toBe(SpanStatusCode.UNSET)
  })

  it('[X8] tells how long a job waited for a worker, from its run time on', async () => {
    beginTracing()
    const task = newTask()
    const producer = deployment.producer()
    const runAt = new Date(Date.now() + 1000)
    const job = await producer.enqueue(task, {}, { runAt })
    await startWorker(task, () => undefined)
    const ended = await producer.waitFor(job)
    const dispatch = await spanOf(`dispatch ${task.name}`)
    expect(ms(dispatch.startTime)).toBeCloseTo(runAt.getTime(), 0)
    expect(ms(dispatch.endTime)).toBeCloseTo(ended.startedAt?.getTime() ?? 0, -1)
    expect(ms(dispatch.endTime)).toBeGreaterThanOrEqual(ms(dispatch.startTime))
  })

  it('[X8] has a run for each attempt, and says why it failed', async () => {
    beginTracing()
    const task = newTask(2)
    const producer = deployment.producer()
    const job = await producer.enqueue(task, {})
    await startWorker(task, () => {
      throw new TypeError('no such thing')
    })
    await producer.waitFor(job)
    await eventually('both runs have ended', async () => spans(`run ${task.name}`).length === 2)
    const runs = spans(`run ${task.name}`)
    expect(runs.map(run => run.attributes['longshore.attempt'])).toEqual([1, 2])
    expect(runs.map(run => run.attributes['longshore.outcome'])).toEqual(['retried', 'failed'])
    expect(spans(`dispatch ${task.name}`)).toHaveLength(2)
    const enqueue = await spanOf(`enqueue ${task.name}`)
    for (const run of runs) {
      expect(run.parentSpanContext?.spanId).toBe(enqueue.spanContext().spanId)
      expect(run.status).toEqual({ code: SpanStatusCode.ERROR, message: 'no such thing' })
      expect(run.attributes['error.type']).toBe('TypeError')
      expect(run.events[0]?.attributes).toMatchObject({
        'exception.message': 'no such thing',
        'exception.stacktrace': expect.stringContaining('tracing.test.ts'),
      })
    }
  })

  it('[X8] says that a run was given back, which is no failure', async () => {
    beginTracing()
    const task = newTask()
    const producer = deployment.producer()
    const started = counter()
    const worker = await deployment.worker({
      handlers: [
        task.handle(async (_, { signal }) => {
          started.add()
          await new Promise(resolve => signal.addEventListener('abort', resolve))
          throw signal.reason
        }),
      ],
    })
    await producer.enqueue(task, {})
    await started.reached(1)
    await worker.stop({ deadline: 0 })
    const run = await spanOf(`run ${task.name}`)
    expect(run.attributes['longshore.outcome']).toBe('released')
    expect(run.status.code).toBe(SpanStatusCode.UNSET)
  })

  it('[X8] ends the run of a job that was completed in a transaction', async () => {
    beginTracing()
    const task = newTask()
    const producer = deployment.producer()
    await deployment.worker({
      handlers: [task.handle((_, ctx) => ctx.complete(tx => tx.query('select 1').then(() => undefined)))],
    })
    await producer.waitFor(await producer.enqueue(task, {}))
    expect((await spanOf(`run ${task.name}`)).attributes['longshore.outcome']).toBe('succeeded')
  })

  it('[X8] reaches a worker in another process, and what its handler enqueues there', async () => {
    beginTracing()
    const producer = deployment.producer()
    const first = defineTask<null>({ name: 'traced-first' })
    const worker = spawnScript('test/support/traced-worker.ts', [], {
      DATABASE_URL: database.urlOf('app'),
      LONGSHORE_LOG_LEVEL: 'silent',
    })
    try {
      await producer.enqueue(first, null)
      await worker.says('run traced-second')
    } finally {
      worker.child.kill('SIGTERM')
    }
    const { stdout } = await worker.ended
    const { traceId, spanId } = (await spanOf('enqueue traced-first')).spanContext()
    const told = new Map(
      stdout.split('\n').flatMap(line => {
        const [, name, trace, span, parent] = /^(\D+) (\w{32}) (\w{16}) (\w{16})$/.exec(line) ?? []
        return name ? [[name, { trace, span, parent }] as const] : []
      }),
    )
    expect(told.get('run traced-first')).toMatchObject({ trace: traceId, parent: spanId })
    const enqueue = told.get('enqueue traced-second')
    expect(enqueue).toMatchObject({ trace: traceId, parent: told.get('run traced-first')?.span })
    expect(told.get('run traced-second')).toMatchObject({ trace: traceId, parent: enqueue?.span })
  })

  it('[X8] begins anew for each job of a batch, with a link to the one enqueue', async () => {
    beginTracing()
    const task = newTask()
    const producer = deployment.producer()
    const jobs = await producer.enqueueMany(task, [1, 2, 3])
    await startWorker(task, () => undefined)
    await Promise.all(jobs.map(job => producer.waitFor(job)))
    await eventually('all runs have ended', async () => spans(`run ${task.name}`).length === 3)
    expect(spans(`enqueue ${task.name}`)).toHaveLength(1)
    const enqueue = await spanOf(`enqueue ${task.name}`)
    expect(enqueue.attributes).toMatchObject({ 'messaging.batch.message_count': 3 })
    expect(enqueue.attributes).not.toHaveProperty('messaging.message.id')
    const runs = spans(`run ${task.name}`)
    const { traceId, spanId } = enqueue.spanContext()
    for (const run of runs) {
      expect(run.links.map(link => link.context)).toMatchObject([{ traceId, spanId }])
      const dispatch = spans(`dispatch ${task.name}`).find(
        span => span.attributes['messaging.message.id'] === run.attributes['messaging.message.id'],
      )
      expect(dispatch?.parentSpanContext).toBeUndefined()
      expect(dispatch?.links.map(link => link.context)).toMatchObject([{ traceId, spanId }])
      expect(run.parentSpanContext?.spanId).toBe(dispatch?.spanContext().spanId)
    }
    const traces = new Set([traceId, ...runs.map(run => run.spanContext().traceId)])
    expect(traces.size).toBe(4)
  })

  it('[X8] links the jobs of a group, and those added later, to who submitted them', async () => {
    beginTracing()
    const task = newTask()
    const producer = deployment.producer()
    const group = producer.group()
    const first = group.add(task, 1)
    group.add(task, 2, { after: first, workflow: 'w' })
    await inSpan('request', () => group.submit())
    const more = producer.addToGroup(group)
    more.add(task, 3, { after: first })
    await more.submit()
    await startWorker(task, () => undefined)
    await producer.waitForGroup(group)
    await eventually('all runs have ended', async () => spans(`run ${task.name}`).length === 3)
    const [submit, add] = spans('enqueue group')
    expect(submit?.parentSpanContext?.spanId).toBe((await spanOf('request')).spanContext().spanId)
    expect(submit?.attributes).toMatchObject({
      'longshore.group.id': group.id,
      'messaging.batch.message_count': 2,
      'messaging.destination.name': 'default',
    })
    const linked = spans(`run ${task.name}`).flatMap(run => run.links.map(link => link.context.spanId))
    expect(linked).toEqual([submit?.spanContext().spanId, submit?.spanContext().spanId])
    const alone = spans(`run ${task.name}`).filter(run => run.links.length === 0)
    expect(alone.map(run => run.parentSpanContext?.spanId)).toEqual([add?.spanContext().spanId])
  })

  it('[X8] is each its own where enqueues share an insert, also into a workflow and a transaction', async () => {
    beginTracing()
    const task = newTask()
    const producer = deployment.producer()
    const client = await database.connect()
    await client.query('begin')
    await Promise.all([
      ...[1, 2, 3].map(n => producer.enqueue(task, n)),
      producer.enqueue(task, 4, { workflow: 'w' }),
      producer.enqueue(task, 5, { id: '0198a2f0-0000-7000-8000-000000000001' }),
      producer.enqueue(task, 6, { tx: client }),
    ])
    await client.query('commit')
    const enqueues = spans(`enqueue ${task.name}`).map(
      span => `00-${span.spanContext().traceId}-${span.spanContext().spanId}-01`,
    )
    expect(new Set(enqueues).size).toBe(6)
    expect((await stored()).sort()).toEqual(enqueues.sort())
  })

  it('[X8] records what an enqueue was refused for', async () => {
    beginTracing()
    const task = newTask()
    const producer = deployment.producer()
    const client = await database.connect()
    await client.query('begin')
    await expect(client.query('select 1 / 0')).rejects.toThrow()
    // One that cannot tell that its transaction has failed, so that the statement is sent.
    const tx = { query: (text: string, values?: unknown[]) => client.query(text, values) }
    await expect(producer.enqueue(task, {}, { tx })).rejects.toThrow('transaction is aborted')
    const [span] = spans(`enqueue ${task.name}`)
    expect(span?.status).toMatchObject({
      code: SpanStatusCode.ERROR,
      message: expect.stringContaining('transaction is aborted'),
    })
    expect(span?.events[0]?.name).toBe('exception')

    const group = producer.addToGroup('0198a2f0-0000-7000-8000-000000000002')
    group.add(task, 1)
    await expect(group.submit()).rejects.toThrow(LongshoreError)
    expect(spans('enqueue group')[0]?.attributes['error.type']).toBe('GROUP_NOT_FOUND')
  })

  it('[X8] keeps what vendors add to it, unless it is too long', async () => {
    beginTracing()
    const task = newTask()
    const producer = deployment.producer()
    const enqueueUnder = (state: string) =>
      context.with(
        trace.setSpanContext(context.active(), {
          traceId: '1'.repeat(32),
          spanId: '2'.repeat(16),
          traceFlags: TraceFlags.SAMPLED,
          traceState: createTraceState(state),
        }),
        () => producer.enqueue(task, {}),
      )
    await enqueueUnder('vendor=some thing')
    expect(await stored()).toEqual([expect.stringMatching(/^00-1{32}-\w{16}-01 vendor=some thing$/)])
    await enqueueUnder(['a', 'b', 'c'].map(key => `${key}=${'x'.repeat(200)}`).join(','))
    await startWorker(task, () => undefined)
    await eventually('both have run', async () => spans(`run ${task.name}`).length === 2)
    expect(spans(`run ${task.name}`).map(run => run.spanContext().traceState?.serialize())).toEqual([
      'vendor=some thing',
      undefined,
    ])
  })

  it('[X8] that is not sampled stays so in the worker', async () => {
    beginTracing({ isSampled: false })
    const task = newTask()
    const producer = deployment.producer()
    const job = await producer.enqueue(task, {})
    expect(await stored()).toEqual([expect.stringMatching(/^00-\w{32}-\w{16}-00$/)])
    trace.disable()
    context.disable()
    beginTracing()
    await startWorker(task, () => undefined)
    await producer.waitFor(job)
    expect(exporter.getFinishedSpans()).toEqual([])
  })

  it('[X8] begins with the worker for a job that was enqueued without one', async () => {
    const task = newTask()
    const producer = deployment.producer()
    const job = await producer.enqueue(task, {})
    beginTracing()
    await startWorker(task, () => undefined)
    await producer.waitFor(job)
    const [dispatch, run] = [await spanOf(`dispatch ${task.name}`), await spanOf(`run ${task.name}`)]
    expect(dispatch.parentSpanContext).toBeUndefined()
    expect(run.parentSpanContext?.spanId).toBe(dispatch.spanContext().spanId)
  })

  it('[X8] can be given from plain SQL, and is refused where it is none', async () => {
    beginTracing()
    const task = newTask()
    const enqueue = (options: object) =>
      database.rows<{ id: string }>('select longshore.enqueue($1, $2, $3) as id', [task.name, {}, options])
    const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`
    await enqueue({ traceparent })
    await enqueue({ traceparent: null })
    for (const bad of ['', 'x', traceparent.toUpperCase(), traceparent.slice(1), `${traceparent}-1`, 7])
      await expect(enqueue({ traceparent: bad })).rejects.toThrow('traceparent')
    for (const zeros of [
      `00-${'0'.repeat(32)}-${'b'.repeat(16)}-01`,
      `00-${'a'.repeat(32)}-${'0'.repeat(16)}-01`,
    ])
      await expect(enqueue({ traceparent: zeros })).rejects.toThrow('traceparent')
    expect(await stored()).toEqual([traceparent, null])
    await startWorker(task, () => undefined)
    await eventually('both have run', async () => spans(`run ${task.name}`).length === 2)
    expect(spans(`run ${task.name}`)[0]?.parentSpanContext).toMatchObject({
      traceId: 'a'.repeat(32),
      spanId: 'b'.repeat(16),
    })
  })

  it('[X8] harms no job when what gathers spans throws', async () => {
    const fail = () => {
      throw new Error('out of order')
    }
    const quiet = { forceFlush: async () => undefined, shutdown: async () => undefined }
    for (const processor of [
      { ...quiet, onStart: fail, onEnd: () => undefined },
      { ...quiet, onStart: () => undefined, onEnd: fail },
    ]) {
      beginTracing({ processors: [processor] })
      const task = newTask()
      const producer = deployment.producer()
      const worker = await deployment.worker({ handlers: [task.handle(() => 'fine')] })
      const job = await producer.enqueue(task, {})
      expect(await producer.waitFor(job)).toMatchObject({ state: 'succeeded', result: 'fine' })
      await worker.stop()
      trace.disable()
      context.disable()
    }
  })
})

describe('without a tracer', () => {
  it('[X8] nothing is stored, and the claim brings nothing for spans', async () => {
    const task = newTask()
    const producer = deployment.producer()
    await producer.enqueue(task, {})
    await producer.enqueueMany(task, [1, 2])
    const group = producer.group()
    group.add(task, 3)
    await group.submit()
    expect(await stored()).toEqual([null, null, null, null])
    await database.rows(`alter function longshore.read_traces(uuid[]) rename to read_traces_away`)
    try {
      await startWorker(task, () => undefined)
      await producer.waitForGroup(group)
    } finally {
      await database.rows(`alter function longshore.read_traces_away(uuid[]) rename to read_traces`)
    }
    expect(exporter.getFinishedSpans()).toEqual([])
  })

  it('[X8] a worker that begins to trace while it runs does so from its next claim on', async () => {
    const task = newTask()
    const producer = deployment.producer()
    const mayReturn = gate()
    const started = counter()
    await startWorker(task, () => {
      started.add()
      return mayReturn.opened
    })
    const before = await producer.enqueue(task, {})
    await started.reached(1)
    beginTracing()
    mayReturn.open()
    await producer.waitFor(before)
    await producer.waitFor(await producer.enqueue(task, {}))
    await spanOf(`run ${task.name}`)
    expect(spans(`run ${task.name}`)).toHaveLength(1)
  })

  it('[X8] jobs are enqueued and run where the package is not installed', async () => {
    const { ended } = spawnScript('test/support/without-tracing.ts', [], {
      DATABASE_URL: database.urlOf('app'),
      LONGSHORE_LOG_LEVEL: 'silent',
    })
    const { code, stdout, stderr } = await ended
    expect(stderr).toBe('')
    expect(stdout).toBe('ERR_MODULE_NOT_FOUND\nsucceeded\n')
    expect(code).toBe(0)
  })
})

async function startWorker(task: Task<unknown>, run: () => unknown): Promise<{ id: number }> {
  await deployment.worker({ handlers: [task.handle(run)] })
  const [worker] = await database.rows<{ id: number }>('select max(id) as id from longshore.workers')
  return { id: worker?.id ?? 0 }
}
