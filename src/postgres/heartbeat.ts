/**
 * Owns the parent's side of the heartbeat: a thread that tells Postgres that one life of a worker goes on, and tells
 * the worker what Postgres says of it and what it notifies. The thread is replaced when it fails. See heartbeat-thread.mjs for the other side.
 */
import { Worker as Thread } from 'node:worker_threads'
import { LongshoreError } from '../job/errors.ts'
import { messageOf } from '../job/stored-error.ts'
import { ownFile } from '../runtime/own-files.ts'
import { pauseMs } from '../runtime/retry.ts'
import { connectionConfig } from './connect.ts'
import { heartbeatFile } from './heartbeat-thread.mjs'
import type { PostgresConfig } from './postgres-config.ts'
import { inSchema } from './schema-name.ts'
import type { WorkerKey } from './secret.ts'
import { PIN } from './session.ts'

export interface Heartbeat {
  /** Resolves when the first beat has been answered; rejects when none is within ten seconds. */
  readonly begun: Promise<void>
  /** How long ago the last beat was answered; since it was started, when none was. */
  sinceBeatMs(): number
  /** Beats at once, with the figures of this moment. `waitsAlone`: told with this beat and those that follow. */
  tell(news: { waitsAlone: string | null }): void
  /** Resolves when the thread is gone. Nothing is told any more from now on. */
  stop(): Promise<void>
}

export interface HeartbeatOptions {
  /** Where notifications come from: not through a pooler in transaction mode. */
  postgres: PostgresConfig
  schema: string
  worker: WorkerKey
  /** Full names of what it listens to, see `channelName`. */
  channels: readonly string[]
  onNotify: (channel: string, payload: string) => void
  /** Notifications may have been missed: the connection was replaced. */
  onGap: () => void
  /** There is a pooler in between; in transaction mode it lets no notification through. Told once. */
  onPooled: () => void
  /** A beat each third of it. */
  leaseMs: number
  /** Beats stop while the main thread has not run for this long: a worker that is stuck for good must lose its jobs. */
  stallMs: number
  /** The life is over: its jobs are being or have been rescued. Told once; there are no more beats. */
  onDead: () => void
  /** Jobs that this worker runs were cancelled. Told at each beat while there are any. */
  onCancelled: () => void
  /** This worker was drained, or may take jobs again. */
  onDrained: () => void
  /** Read about once a second, and stored with each beat. */
  figures: () => Figures
  /** What it could not do; it goes on by itself. */
  onError: (error: Error) => void
  /** A beat was answered after one that was not. */
  onAgain: () => void
}

/** What a worker has room for, and how it fares. */
export interface Figures {
  available: number
  max: number
  /** The share that it uses of its memory. */
  memory: number
  /** The longest that the event loop was late since the last time. */
  lagMs: number
  completed: number
  failed: number
  /** Handlers that ignored their signal and have not returned, and how long ago the oldest should have. */
  stuck: number
  stuckMs: number
}

type Told =
  | { event: 'begun' | 'again' | 'gap' | 'pooled' | 'dead' | 'cancelled' | 'drained' }
  | { event: 'notified'; channel: string; payload: string }
  | { event: 'problem'; message: string; code?: string }
  | { event: 'password'; id: number }

const BEGIN_MS = 10_000
const STOP_MS = 2000
/** Below this a connection can hardly be made. */
const LEAST_CALL_MS = 100
const LONGEST_TICK_MS = 1000
const PAUSES = { firstMs: 50, maxMs: 2000 }

export function startHeartbeat(options: HeartbeatOptions): Heartbeat {
  const data = heartbeatData(options)
  const [TICK, BEAT] = [0, 1]
  const times = new BigInt64Array(data.times)
  Atomics.store(times, BEAT, process.hrtime.bigint())
  // One clock for both threads: it counts from the start of the machine.
  const tick = () => {
    const { available, max, memory, lagMs, completed, failed, stuck, stuckMs } = options.figures()
    new Float64Array(data.figures).set([available, max, memory, lagMs, completed, failed, stuck, stuckMs])
    Atomics.store(times, TICK, process.hrtime.bigint())
  }
  tick()
  const ticking = setInterval(tick, data.tickMs).unref()
  const begun = promiseOfBegin()
  let thread: Thread | undefined
  let restart: NodeJS.Timeout | undefined
  let told: { waitsAlone: string | null } = { waitsAlone: null }
  let failures = 0
  let hasBegun = false
  let isOver = false

  const over = () => {
    isOver = true
    clearInterval(ticking)
    clearTimeout(restart)
    begun.resolve()
  }

  const onTold = (from: Thread, told: Told) => {
    if (isOver) return
    switch (told.event) {
      case 'begun':
        failures = 0
        // Not the first thread of this life.
        if (hasBegun) options.onGap()
        hasBegun = true
        return begun.resolve()
      case 'again':
        return options.onAgain()
      case 'notified':
        return options.onNotify(told.channel, told.payload)
      case 'gap':
        return options.onGap()
      case 'pooled':
        return options.onPooled()
      case 'cancelled':
        return options.onCancelled()
      case 'drained':
        return options.onDrained()
      case 'problem': {
        const error = Object.assign(new Error(told.message), told.code ? { code: told.code } : {})
        begun.because(error)
        return options.onError(error)
      }
      case 'password':
        return void answerPassword(from, told.id)
      case 'dead':
        over()
        return options.onDead()
    }
  }

  const answerPassword = async (from: Thread, id: number) => {
    try {
      from.postMessage({ verb: 'password', id, password: await data.password?.() })
    } catch (error) {
      from.postMessage({ verb: 'password', id, problem: messageOf(error) })
    }
  }

  const begin = () => {
    const { password: _, ...longshoreHeartbeat } = data
    try {
      // Not the flags of this process: a loader or an instrumentation has no business there, and costs its start.
      const next = new Thread(heartbeatFile, {
        workerData: { longshoreHeartbeat: { ...longshoreHeartbeat, ...told } },
        execArgv: [],
      })
      thread = next
      next.unref()
      next.on('message', told => onTold(next, told as Told))
      next.on('error', error => isOver || options.onError(error as Error))
      next.on('exit', code => failed(`ended with ${code}`))
    } catch (error) {
      failed(`could not be started: ${messageOf(error)}`)
    }
  }

  const failed = (how: string) => {
    if (isOver) return
    failures++
    const error = new Error(`the heartbeat's thread ${how}; it is started again`)
    begun.because(error)
    options.onError(error)
    restart = setTimeout(begin, pauseMs(failures, PAUSES)).unref()
  }
  begin()

  const stop = async () => {
    over()
    if (!thread || thread.threadId === -1) return
    const stopped = thread
    // From here on it is waited for.
    stopped.ref()
    await new Promise<void>(resolve => {
      const patience = setTimeout(resolve, STOP_MS)
      stopped.once('exit', () => {
        clearTimeout(patience)
        resolve()
      })
      stopped.postMessage({ verb: 'stop' })
    })
    await stopped.terminate()
  }

  let stopped: Promise<void> | undefined
  return {
    begun: begun.promise,
    tell(news) {
      if (isOver) return
      tick()
      told = news
      thread?.postMessage({ verb: 'beat', ...news })
    },
    sinceBeatMs: () => Number((process.hrtime.bigint() - Atomics.load(times, BEAT)) / 1_000_000n),
    stop() {
      stopped ??= stop()
      return stopped
    },
  }
}

function promiseOfBegin() {
  let resolve: () => void = () => undefined
  let reject: (error: Error) => void = () => undefined
  let reason: Error | undefined
  const promise = new Promise<void>((yes, no) => {
    resolve = yes
    reject = no
  })
  promise.catch(() => undefined) // the callers that wait are told; perhaps there are none yet
  const giveUp = () =>
    reject(
      new LongshoreError('STORE_UNAVAILABLE', `no beat was answered in ${BEGIN_MS} ms: ${reason?.message}`, {
        cause: reason,
      }),
    )
  // A main thread that was busy meanwhile reads its messages first.
  const limit = setTimeout(() => setImmediate(giveUp), BEGIN_MS)
  return {
    promise,
    because(error: Error) {
      reason = error
    },
    resolve() {
      clearTimeout(limit)
      resolve()
    },
  }
}

function heartbeatData(options: HeartbeatOptions) {
  const { config, password } = portableConfig(options.postgres)
  return {
    config,
    password,
    asksPassword: password !== undefined,
    pin: PIN,
    text: inSchema(
      options.schema,
      'select is_alive, has_cancelled, is_drained from longshore.beat($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)',
    ),
    channels: options.channels,
    worker: options.worker,
    beatMs: options.leaseMs / 3,
    callMs: Math.max(LEAST_CALL_MS, options.leaseMs / 3),
    tickMs: Math.min(LONGEST_TICK_MS, options.stallMs / 4),
    stallMs: options.stallMs,
    /** Of the main thread's last tick, and of the last beat that was answered. */
    times: new SharedArrayBuffer(2 * 8),
    figures: new SharedArrayBuffer(8 * 8),
  }
}

/**
 * What can be handed to a thread. A password function stays here and is asked from there; any other function, or an
 * open TLS context, is refused: to leave it out would connect in another way than the user said.
 */
export function portableConfig(postgres: PostgresConfig) {
  ownFile('package.json') // refuses a bundle, from where no thread can be started
  const { password, ...config } = connectionConfig(postgres)
  const settings: [string, unknown][] = Object.entries({ ...config, ssl: undefined })
  if (typeof config.ssl === 'object') {
    // The driver hides `key` in the user's own object, and what is hidden does not travel.
    config.ssl = { ...config.ssl, ...(config.ssl.key ? { key: config.ssl.key } : {}) }
    for (const [key, value] of Object.entries(config.ssl)) settings.push([`ssl.${key}`, value])
  }
  const stuck = settings.filter(([, value]) => !canTravel(value)).map(([key]) => key)
  if (stuck.length > 0) {
    throw new LongshoreError(
      'CONFIG_INVALID',
      `postgres: ${stuck.join(', ')} cannot be handed to the thread of the heartbeat: use plain values (for TLS: ca, cert, key, servername, rejectUnauthorized); only password may be a function`,
    )
  }
  return typeof password === 'function'
    ? { config, password: password as () => string | Promise<string> }
    : { config: { ...config, ...(password === undefined ? {} : { password }) }, password: undefined }
}

function canTravel(value: unknown): boolean {
  try {
    structuredClone(value)
    return true
  } catch {
    return false
  }
}
