/** A module of handlers for threads: what a job does is named by its payload. */
import { existsSync, writeFileSync } from 'node:fs'
import { setImmediate as turn } from 'node:timers/promises'
import { threadId } from 'node:worker_threads'

const never = () => new Promise(() => undefined)
const say = file => writeFileSync(file, String(threadId))

const works = {
  echo: job => ({ ...job, payload: job.payload.value, isDate: job.createdAt instanceof Date }),
  thread: () => threadId,
  /** Busy until the file `end` is there. */
  spin({ payload }) {
    say(payload.inside)
    while (!existsSync(payload.end));
    return threadId
  },
  spinForEver({ payload }) {
    say(payload.inside)
    for (;;);
  },
  /** Once, then it works. */
  spinFirst({ attempt }) {
    if (attempt === 1) for (;;);
    return threadId
  },
  /** Never awaits, but looks at its signal. */
  loop({ payload }, { signal }) {
    say(payload.inside)
    while (!signal.aborted);
    return signal.reason.code
  },
  async poll({ payload }, { signal }) {
    say(payload.inside)
    while (!signal.aborted) await turn()
    say(payload.end)
    signal.throwIfAborted()
  },
  talk(_, { log, progress }) {
    log('begun', { n: 1 })
    log.warn('odd', { call: () => undefined })
    progress(1, 2)
    progress(2, 2)
    setTimeout(() => log('too late'), 0)
  },
  exit: () => process.exit(3),
  throwLater() {
    setTimeout(() => {
      throw new TypeError('nobody catches this')
    })
    return never()
  },
  reject() {
    Promise.reject(new RangeError('nobody handles this'))
    return never()
  },
  fill() {
    const all = []
    for (;;) all.push(Array.from({ length: 10_000 }, Math.random))
  },
  throwError() {
    class OddError extends Error {
      name = 'OddError'
      code = 'E_ODD'
      retryAfterMs = 7
    }
    throw new OddError('odd', { cause: new TypeError('deeper') })
  },
  throwCauses() {
    const circle = new Error('circle')
    circle.cause = circle
    const getter = Object.defineProperty(new Error('getter'), 'cause', {
      get: () => {
        throw new Error('no')
      },
    })
    const refused = Object.assign(new Error('refused'), { code: 'ECONNREFUSED' })
    throw new TypeError('outer', { cause: new AggregateError([refused, circle, getter, 'text'], 'several') })
  },
  throwCloneError: () => structuredClone(() => undefined),
  throwText() {
    throw 'a text'
  },
  throwHostile() {
    throw new Proxy(new Error('hostile'), {
      get: () => {
        throw new Error('no')
      },
    })
  },
  async throwFinal() {
    const { tsImport } = await import('tsx/esm/api')
    const { NonRetryableError } = await tsImport('../../../src/job/errors.ts', import.meta.url)
    throw new NonRetryableError('never again', { cause: new Error('the reason') })
  },
  returnFunction: () => () => undefined,
  returnMap: () => new Map(),
  complete: (_, ctx) => ctx.complete(() => undefined),
  async relatives(_, ctx) {
    const each = []
    for await (const { task } of ctx.parents) each.push(task)
    return {
      group: await ctx.groupId(),
      all: (await ctx.parents.all()).length,
      of: (await ctx.parents.of({ name: 'parent' })).map(({ state, result }) => ({ state, result })),
      each,
    }
  },
}

export default (job, ctx) => works[job.payload.work](job, ctx)
