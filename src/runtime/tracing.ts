/**
 * Owns OpenTelemetry: the spans of enqueues and runs, and the form in which a trace travels with its job. No other file
 * knows the package. It is optional: where it is not installed, or no tracer provider is registered, there are no spans,
 * nothing is stored, and a call costs a look at two variables.
 */
import type * as OpenTelemetry from '@opentelemetry/api'
import type { StoredError } from '../job/job.ts'
import { stackOf, toStoredError } from '../job/stored-error.ts'

type Api = typeof OpenTelemetry

let api: Api | undefined
let loading: Promise<void> | undefined

/** Look for the package, once for the process. Never fails: without it nothing is traced. */
export function loadTracing(): Promise<void> {
  loading ??= import('@opentelemetry/api').then(
    found => {
      api = found
    },
    () => undefined,
  )
  return loading
}

/** Whether a tracer provider is registered. That may begin, and end, at any time. */
export const isTracing = (): boolean => api !== undefined && findTracer(api) !== undefined

function findTracer({ trace }: Api): OpenTelemetry.Tracer | undefined {
  const provider = trace.getTracerProvider()
  // Until one is registered there is a stand-in, whose spans would be made for nothing.
  if (isStandIn(provider)) return provider.getDelegateTracer('longshore')
  return provider.getTracer('longshore')
}

const isStandIn = (provider: OpenTelemetry.TracerProvider): provider is OpenTelemetry.ProxyTracerProvider =>
  'getDelegateTracer' in provider

/** What one call enqueues. */
export interface Sent {
  /** Its task, or `group`. */
  name: string
  /** Undefined where they go to several. */
  queue: string | undefined
  jobs: number
  jobId?: string | undefined
  groupId?: string
}

/** Call `send` inside a span, with what is to be stored with the jobs; without tracing, with undefined and no span. */
export function traceEnqueue<T>(send: (trace: string | undefined) => Promise<T>, sent: Sent): Promise<T> {
  const tracer = api && findTracer(api)
  if (!api || !tracer) return send(undefined)
  const span = unharmed(() => startEnqueue(tracer, sent))
  return span ? sendInside(api, span, send, sent.jobs > 1) : send(undefined)
}

const startEnqueue = (tracer: OpenTelemetry.Tracer, sent: Sent) =>
  tracer.startSpan(`enqueue ${sent.name}`, {
    kind: PRODUCER,
    attributes: {
      ...attributesOf(sent.queue, sent.jobId),
      'messaging.operation.name': 'enqueue',
      'messaging.operation.type': 'send',
      'messaging.batch.message_count': sent.jobs > 1 ? sent.jobs : undefined,
      'longshore.task': sent.groupId === undefined ? sent.name : undefined,
      'longshore.group.id': sent.groupId,
    },
  })

async function sendInside<T>(
  { context, isSpanContextValid, trace }: Api,
  span: OpenTelemetry.Span,
  send: (trace: string | undefined) => Promise<T>,
  isBatch: boolean,
): Promise<T> {
  const spanContext = span.spanContext()
  const stored = isSpanContextValid(spanContext) ? toStoredTrace(spanContext, isBatch) : undefined
  try {
    const result = await context.with(trace.setSpan(context.active(), span), send, undefined, stored)
    unharmed(() => span.end())
    return result
  } catch (error) {
    unharmed(() => {
      fail(span, toStoredError(error))
      span.end()
    })
    throw error
  }
}

/** A run that is about to start. Times are those of the database. */
export interface Claimed {
  jobId: string
  task: string
  queue: string
  attempt: number
  workerId: number
  readySinceMs: number
  claimedAtMs: number
  /** What `traceEnqueue` stored with the job. */
  stored: string | null
}

/** The span of a run. */
export interface RunSpan {
  /** Call the handler with the span active, so that the spans it makes become children. */
  call<T>(handler: () => T): T
  /** `error`: why it failed, where it did. */
  end(outcome: string, error?: StoredError): void
}

/** Makes the span of the wait for a worker, which is over, and begins that of the run. Undefined if tracing has ended. */
export function traceRun(claimed: Claimed): RunSpan | undefined {
  const found = api
  const tracer = found && findTracer(found)
  return tracer && unharmed(() => startRun(found, tracer, claimed))
}

function startRun(api: Api, tracer: OpenTelemetry.Tracer, claimed: Claimed): RunSpan {
  const { context, ROOT_CONTEXT, trace } = api
  const origin = readStoredTrace(api, claimed.stored)
  const links = origin?.isLink ? [{ context: origin.context }] : []
  const parent = origin && !origin.isLink ? trace.setSpanContext(ROOT_CONTEXT, origin.context) : undefined
  const attributes = {
    ...attributesOf(claimed.queue, claimed.jobId),
    'longshore.task': claimed.task,
    'longshore.attempt': claimed.attempt,
    'longshore.worker.id': claimed.workerId,
  }
  const dispatch = tracer.startSpan(
    `dispatch ${claimed.task}`,
    { startTime: claimed.readySinceMs, attributes, links },
    parent ?? ROOT_CONTEXT,
  )
  dispatch.end(claimed.claimedAtMs)
  // Without a parent the two would be traces of their own.
  const above = parent ?? trace.setSpan(ROOT_CONTEXT, dispatch)
  const run = tracer.startSpan(
    `run ${claimed.task}`,
    {
      kind: CONSUMER,
      attributes: { ...attributes, 'messaging.operation.name': 'run', 'messaging.operation.type': 'process' },
      links,
    },
    above,
  )
  const inside = trace.setSpan(above, run)
  return {
    call: handler => context.with(inside, handler),
    end: (outcome, error) =>
      unharmed(() => {
        run.setAttribute('longshore.outcome', outcome)
        if (error) fail(run, error)
        run.end()
      }),
  }
}

/** Of the package, which may not be there: PRODUCER and CONSUMER of SpanKind, ERROR of SpanStatusCode. */
const PRODUCER = 3 satisfies OpenTelemetry.SpanKind.PRODUCER
const CONSUMER = 4 satisfies OpenTelemetry.SpanKind.CONSUMER
const ERROR = 2 satisfies OpenTelemetry.SpanStatusCode.ERROR

/** Whatever a user's span processor or sampler throws, jobs go on. */
function unharmed<T>(work: () => T): T | undefined {
  try {
    return work()
  } catch {
    return undefined
  }
}

const attributesOf = (queue: string | undefined, jobId: string | undefined) => ({
  'messaging.system': 'longshore',
  'messaging.destination.name': queue,
  'messaging.message.id': jobId,
})

function fail(span: OpenTelemetry.Span, error: StoredError): void {
  const { code, message, name = code } = error
  span.recordException({
    code,
    name,
    message,
    ...(error.stack === undefined ? {} : { stack: stackOf(error) }),
  })
  // What others threw is known by its class.
  span.setAttribute('error.type', code === 'HANDLER_FAILED' ? name : code)
  span.setStatus({ code: ERROR, message })
}

/** Longer ones are left out, as W3C Trace Context allows: a part of one would be wrong. */
const MOST_STATE = 512
const STORED = /^(link )?00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?: (.+))?$/

/**
 * `[link ]traceparent[ tracestate]`. A job that was enqueued alone continues the trace of its enqueue. Jobs of one call
 * begin a trace each, with a link to it, as OpenTelemetry advises for batches: a trace with ten thousand runs is unreadable.
 */
function toStoredTrace(context: OpenTelemetry.SpanContext, isLink: boolean): string {
  const flags = context.traceFlags.toString(16).padStart(2, '0')
  const state = context.traceState?.serialize() ?? ''
  const kept = state !== '' && state.length <= MOST_STATE && /^[\x20-\x7e]+$/.test(state) ? ` ${state}` : ''
  return `${isLink ? 'link ' : ''}00-${context.traceId}-${context.spanId}-${flags}${kept}`
}

function readStoredTrace(api: Api, stored: string | null) {
  const [, link, traceId, spanId, flags, state] = (stored && STORED.exec(stored)) || []
  if (!traceId || !spanId || !flags) return undefined
  const context: OpenTelemetry.SpanContext = {
    traceId,
    spanId,
    traceFlags: Number.parseInt(flags, 16),
    isRemote: true,
    ...(state === undefined ? {} : { traceState: api.createTraceState(state) }),
  }
  return api.isSpanContextValid(context) ? { context, isLink: link !== undefined } : undefined
}
