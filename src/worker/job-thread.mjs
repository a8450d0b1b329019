/**
 * The program of a thread that runs handlers, one job at a time, see `isolate: 'thread'`. Plain JavaScript, because it runs
 * under bare `node`, from `src` as well as from `dist`. See open-thread.ts for the other side.
 *
 * Given:  workerData.longshoreJobThread: { abortedCall }, shared memory that holds the number of the call whose signal has fired
 * Told:   { verb: 'load', module } | { verb: 'run', call, module, job } | { verb: 'abort', call, reason }
 *         | { verb: 'answer', id, value } | { verb: 'answer', id, problem }
 * Tells:  { event: 'loaded' } | { event: 'not loaded', thrown } | { event: 'returned', value } | { event: 'threw', thrown }
 *         | { event: 'said', call, level, message, data } | { event: 'progress', call, done, total }
 *         | { event: 'refused', problem } | { event: 'crashed', origin, thrown } | { event: 'asked', call, id, question }
 */
import nodeModule, { createRequire } from 'node:module'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { inspect, types } from 'node:util'
import { isMainThread, parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads'

/** Empty in a bundle of CommonJS, which own-files.ts refuses. */
export const jobThreadFile = import.meta.url ? fileURLToPath(import.meta.url) : ''

const BEFORE_ALL = '00000000-0000-0000-0000-000000000000'
const MOST_CAUSES = 8
const MOST_ERRORS = 11
/** As stored-error.ts says it. */
const CIRCLE = {
  isError: true,
  name: 'LeftOut',
  message: 'left out: an error that stands above: the causes go round in a circle',
  own: {},
}
const isAborted = Object.getOwnPropertyDescriptor(AbortSignal.prototype, 'aborted').get

/** The class of the library is not loaded here: most handlers do without it, and it would slow down the start. */
class LongshoreError extends Error {
  name = 'LongshoreError'
  constructor({ code, message }) {
    super(message)
    this.code = code
  }
}

if (!isMainThread && workerData?.longshoreJobThread) {
  const given = workerData.longshoreJobThread
  // A handler that imports longshore may load this file under another address.
  delete workerData.longshoreJobThread
  serve(given)
}

function serve(given) {
  const abortedCall = new Int32Array(given.abortedCall)
  const handlers = new Map()
  const tell = message => parentPort.postMessage(message)
  const ask = askParent(tell)
  let current = { call: 0, controller: new AbortController() }

  const onMessage = message => {
    switch (message.verb) {
      case 'load':
        return void load(message.module)
      case 'run':
        return void run(message)
      case 'abort':
        if (message.call === current.call) current.controller.abort(new LongshoreError(message.reason))
        return
      case 'answer':
        return ask.answered(message)
    }
  }

  const load = async module => {
    try {
      const { default: exported } = await importHere(module)
      // CommonJS that was compiled from `export default` has it one level down.
      const handler = exported?.default ?? exported
      if (typeof handler !== 'function')
        throw new Error('it must export its handler: export default async (job, ctx) => { … }')
      handlers.set(module, handler)
      tell({ event: 'loaded' })
    } catch (thrown) {
      tell({ event: 'not loaded', thrown: pack(thrown) })
    }
  }

  const run = async ({ call, module, job }) => {
    const controller = new AbortController()
    current = { call, controller }
    letLoopsLook(controller.signal, () => {
      if (Atomics.load(abortedCall, 0) !== call) return
      // The handler keeps the event loop from running: what was sent is fetched.
      for (let next = receiveMessageOnPort(parentPort); next; next = receiveMessageOnPort(parentPort))
        onMessage(next.message)
    })
    let value
    try {
      value = await handlers.get(module)(job, contextOf(call, controller.signal, ask, tell))
    } catch (thrown) {
      return tell({ event: 'threw', thrown: pack(thrown) })
    }
    try {
      tell({ event: 'returned', value })
    } catch (error) {
      tell({ event: 'refused', problem: error.message })
    }
  }

  parentPort.on('message', onMessage)
  process.on('uncaughtExceptionMonitor', (thrown, origin) =>
    tell({ event: 'crashed', origin, thrown: pack(thrown) }),
  )
}

/**
 * Where Node has no `registerHooks`, a thread does not inherit tsx from its process: it is started here. It is looked for from the
 * module, since longshore does not depend on it; beside what `require` finds lies the build that works in a thread.
 */
let tsx
async function importHere(module) {
  const flags = [...process.execArgv, process.env.NODE_OPTIONS ?? '']
  const hasTsx = flags.some(flag => /\btsx\b/.test(flag)) && !nodeModule.registerHooks
  if (hasTsx && /\.[mc]?tsx?$/.test(module)) {
    const found = createRequire(module)
      .resolve('tsx/esm/api')
      .replace(/\.cjs$/, '.mjs')
    tsx ??= import(pathToFileURL(found).href).then(api => api.register())
    await tsx
  }
  return import(module)
}

/** What a handler is given beside its job. What it asks the parent for goes through `ask`, what it reports through `tell`. */
function contextOf(call, signal, ask, tell) {
  async function* read(task) {
    let after = BEFORE_ALL
    while (after !== undefined) {
      const page = await ask(call, { what: 'parents', task, after })
      yield* page
      after = page.at(-1)?.id
    }
  }
  const listOf = async task => {
    const list = []
    for await (const parent of read(task)) list.push(parent)
    return list
  }
  return {
    signal,
    parents: {
      [Symbol.asyncIterator]: () => read(null),
      all: () => listOf(null),
      of: task => listOf(task.name),
    },
    groupId: () => ask(call, { what: 'group' }),
    log: Object.assign(logAt(call, 'info', tell), {
      debug: logAt(call, 'debug', tell),
      warn: logAt(call, 'warn', tell),
      error: logAt(call, 'error', tell),
    }),
    progress: (done, total) =>
      tell({ event: 'progress', call, done: portable(done), total: portable(total) }),
    async complete() {
      throw new LongshoreError({
        code: 'TASK_INVALID',
        message:
          "ctx.complete cannot be used in a thread: its transaction is on a connection of the worker's own thread. Return the result, or handle this task without isolate: 'thread'",
      })
    },
  }
}

/** What cannot travel is told in words. Never throws, as everywhere. */
const logAt = (call, level, tell) => (message, data) =>
  tell({ event: 'said', call, level, message: portable(message), data: portable(data) })

function portable(value) {
  try {
    return canTravel(value) ? value : inspect(value, { depth: 4 })
  } catch {
    return 'something that cannot be described'
  }
}

function askParent(tell) {
  const asked = new Map()
  let last = 0
  const ask = (call, question) =>
    new Promise((resolve, reject) => {
      const id = ++last
      asked.set(id, { resolve, reject })
      tell({ event: 'asked', call, id, question })
    })
  ask.answered = ({ id, value, problem }) => {
    const { resolve, reject } = asked.get(id)
    asked.delete(id)
    if (problem) reject(new LongshoreError(problem))
    else resolve(value)
  }
  return ask
}

/** A loop that never awaits may look at its signal as well: `look` fetches what has been sent. */
function letLoopsLook(signal, look) {
  Object.defineProperties(signal, {
    aborted: {
      get() {
        if (!isAborted.call(signal)) look()
        return isAborted.call(signal)
      },
    },
    throwIfAborted: {
      value() {
        if (signal.aborted) throw signal.reason
      },
    },
  })
}

/** Whatever was thrown, in a form that travels. Never throws itself: a hostile object may do so wherever it is touched. */
function pack(thrown, above = []) {
  try {
    if (!types.isNativeError(thrown) && !(thrown instanceof Error)) {
      return { isError: false, value: canTravel(thrown) ? thrown : inspect(thrown, { depth: 2 }) }
    }
    // One more than are stored, so that what stores them can tell that some are left out.
    const isDeep = above.length > MOST_CAUSES
    const path = [...above, thrown]
    const packBehind = each => (path.includes(each) ? CIRCLE : pack(each, path))
    const [cause, errors] = isDeep ? [] : [read(() => thrown.cause), read(() => errorsOf(thrown))]
    const own = Object.entries(thrown).filter(([key, value]) => key !== 'cause' && canTravel(value))
    return {
      isError: true,
      isLongshore: isOfClass(thrown, 'LongshoreError'),
      name: String(thrown.name),
      message: String(thrown.message),
      stack: typeof thrown.stack === 'string' ? thrown.stack : undefined,
      own: Object.fromEntries(own),
      cause: cause === undefined ? undefined : packBehind(cause),
      errors: errors?.slice(0, MOST_ERRORS).map(packBehind),
    }
  } catch {
    return { isError: false, value: 'something that cannot be described' }
  }
}

const errorsOf = thrown => (thrown instanceof AggregateError ? [...thrown.errors] : undefined)

/** Undefined where looking throws. */
function read(look) {
  try {
    return look()
  } catch {
    return undefined
  }
}

/** By name: the library may be loaded more than once. */
function isOfClass(thrown, name) {
  for (let type = thrown.constructor; typeof type === 'function'; type = Object.getPrototypeOf(type)) {
    if (type.name === name) return true
  }
  return false
}

function canTravel(value) {
  try {
    structuredClone(value)
    return true
  } catch {
    return false
  }
}
