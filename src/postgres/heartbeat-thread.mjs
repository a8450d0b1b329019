/**
 * The heartbeat's thread: beats for one life of a worker over a connection of its own, so that neither a handler that
 * blocks the event loop nor a full pool costs the lease. The same connection listens: what Postgres notifies is handed to the main
 * thread. Plain JavaScript, because it runs under bare `node`, from `src` as well as from `dist`. See heartbeat.ts for the other side.
 *
 * Given:  workerData.longshoreHeartbeat, see `heartbeatData`
 * Told:   { verb: 'stop' } | { verb: 'beat', waitsAlone } | { verb: 'password', id, password } | { verb: 'password', id, problem }
 * Tells:  { event: 'begun' | 'again' | 'gap' | 'pooled' | 'dead' | 'cancelled' | 'drained' } | { event: 'notified', channel, payload } | { event: 'problem', message, code } | { event: 'password', id }
 */
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { isMainThread, parentPort, workerData } from 'node:worker_threads'
import pg from 'pg'

/** Empty in a bundle of CommonJS, which own-files.ts refuses. */
export const heartbeatFile = import.meta.url ? fileURLToPath(import.meta.url) : ''

/** How soon a main thread that runs again is noticed. */
const STALL_LOOK_MS = 250
const STOP_MS = 1000
const FIRST_PAUSE_MS = 50
const LONGEST_PAUSE_MS = 2000

if (!isMainThread && workerData?.longshoreHeartbeat) beatOn(workerData.longshoreHeartbeat)

async function beatOn({
  config,
  asksPassword,
  pin,
  text,
  channels,
  worker,
  beatMs,
  callMs,
  tickMs,
  stallMs,
  times,
  figures,
  waitsAlone,
}) {
  const tell = message => parentPort.postMessage(message)
  const password = asksPassword ? passwordFrom(tell, callMs / 2) : () => config.password
  const [TICK, BEAT] = [0, 1]
  const last = new BigInt64Array(times)
  const told = new Float64Array(figures)
  const sinceTick = () => Number((process.hrtime.bigint() - Atomics.load(last, TICK)) / 1_000_000n)
  let isDrained = false
  let client
  let underWay = Promise.resolve()
  let isStopping = false
  let hasBegun = false
  let isStalled = false
  let isToldPooled = false
  let failures = 0
  let beatNow = () => undefined

  parentPort.on('message', async message => {
    if (message.verb === 'beat') {
      waitsAlone = message.waitsAlone
      beatNow()
    }
    if (message.verb !== 'stop') return
    isStopping = true
    await Promise.race([underWay, pause(STOP_MS / 2)])
    await close()
  })

  const connect = async () => {
    const next = new pg.Client({
      ...config,
      password: await password(),
      connectionTimeoutMillis: callMs,
      query_timeout: callMs,
    })
    const lost = () => {
      if (client !== next) return
      client = undefined
      // What is notified meanwhile is missed: it does not wait for the next beat.
      beatNow()
    }
    next.on('error', lost)
    next.on('end', lost)
    next.on('notification', ({ channel, payload = '' }) => tell({ event: 'notified', channel, payload }))
    try {
      await next.connect()
      const { rowCount } = await next.query(pin, [next.processID])
      // A pooler introduces itself with a process of its own making, so nothing was set.
      if (rowCount === 0 && !isToldPooled) tell({ event: 'pooled' })
      isToldPooled ||= rowCount === 0
      for (const channel of channels) await next.query(`listen ${next.escapeIdentifier(channel)}`)
      if (hasBegun) tell({ event: 'gap' })
    } catch (error) {
      drop(next)
      throw error
    }
    return next
  }

  /** Returns how long to wait for the next. */
  const beat = async () => {
    const from = performance.now()
    try {
      client ??= await connect()
      // Of a main thread that does not run, what it said last, but for its lag.
      const [available, max, memory, lagMs, completed, failed, stuck, stuckMs] = told
      const lag = Math.max(lagMs, sinceTick() - tickMs)
      const { rows } = await client.query(text, [
        worker.id,
        available,
        max,
        memory,
        lag,
        completed,
        failed,
        worker.secret,
        stuck,
        stuck > 0 ? stuckMs : null,
        waitsAlone,
      ])
      if (failures > 0) tell({ event: 'again' })
      failures = 0
      if (isStopping) return beatMs
      if (!rows[0].is_alive) {
        isStopping = true
        tell({ event: 'dead' })
        close()
        return beatMs
      }
      Atomics.store(last, BEAT, process.hrtime.bigint())
      if (!hasBegun) tell({ event: 'begun' })
      hasBegun = true
      if (rows[0].has_cancelled) tell({ event: 'cancelled' })
      if (rows[0].is_drained !== isDrained) tell({ event: 'drained' })
      isDrained = rows[0].is_drained
      return beatMs - (performance.now() - from)
    } catch (error) {
      // Whatever it was: a connection that may be in an unknown state is not worth keeping.
      drop(client)
      client = undefined
      failures++
      if (!isStopping) tell({ event: 'problem', message: String(error?.message ?? error), code: error?.code })
      const whole = Math.min(LONGEST_PAUSE_MS, beatMs, FIRST_PAUSE_MS * 2 ** Math.min(failures - 1, 10))
      return whole * (0.5 + Math.random() / 2)
    }
  }

  const close = async () => {
    const ended = client?.end().catch(() => undefined) // it may be broken already
    await Promise.race([ended, pause(STOP_MS / 2)])
    process.exit(0) // of a thread, it ends the thread only
  }

  while (!isStopping) {
    const stalledMs = sinceTick()
    if (stalledMs > stallMs) {
      if (!isStalled) {
        const message = `the main thread has not run for ${stalledMs} ms; beats stop until it does`
        tell({ event: 'problem', message, code: 'STALLED' })
      }
      isStalled = true
      await pause(Math.min(beatMs, STALL_LOOK_MS))
      continue
    }
    isStalled = false
    const asked = new AbortController()
    beatNow = () => asked.abort()
    const beating = beat()
    underWay = beating
    // Until the next is due, or the main thread has news.
    await pause(Math.max(1, await beating), undefined, { signal: asked.signal }).catch(() => undefined)
  }
}

/**
 * Asks the main thread for a password. One that is blocked does not answer in time; then the last password must do,
 * or the heart would stop when it is needed most.
 */
function passwordFrom(tell, limitMs) {
  let last
  let asked = 0
  let onAnswer
  parentPort.on('message', message => {
    if (message.verb !== 'password') return
    if (message.problem === undefined) last = message
    if (message.id === asked) onAnswer?.(message)
  })
  return async () => {
    const id = ++asked
    const answered = new Promise(resolve => {
      onAnswer = resolve
    })
    tell({ event: 'password', id })
    const answer = (await Promise.race([answered, pause(limitMs)])) ?? last
    if (!answer) throw new Error(`timeout expired: the password function did not answer in ${limitMs} ms`)
    if (answer.problem !== undefined) throw new Error(`the password function failed: ${answer.problem}`)
    return answer.password
  }
}

/** Does not wait for the end: the server may not answer. */
function drop(client) {
  client?.end().catch(() => undefined) // it may never have been open
}
