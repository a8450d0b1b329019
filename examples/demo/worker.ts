/** What the demo's worker processes do: `longshore worker examples/demo/worker.ts`. */
import { setTimeout as pause } from 'node:timers/promises'
import {
  callPartner,
  charge,
  compile,
  doStep,
  hopeless,
  link,
  pack,
  remind,
  render,
  resize,
  ship,
} from './tasks.ts'

/** Its own name, for those who want to know where a job ran. */
const worker = process.argv[process.argv.indexOf('--name') + 1] ?? ''

export const handlers = [
  resize.handle(async ({ payload }, { signal }) => {
    await pause(Math.random() * 20, undefined, { signal })
    return { image: payload.image, bytes: payload.width * 137 }
  }),

  render.handle(() => ({ worker })),

  charge.handle(() => pause(10)),

  pack.handle(async (_, { signal }) => {
    await pause(400, undefined, { signal })
    return { worker }
  }),

  callPartner.handle(async ({ payload, attempt }) => {
    if (payload.call % 3 === 0 && attempt < 3) throw new Error(`503 on attempt ${attempt}`)
  }),

  remind.handle(() => undefined),

  compile.handle(({ payload }) => ({ bytes: 1000 + payload.source.charCodeAt(0) })),

  link.handle(async (_, { parents }) => {
    const objects = await parents.of(compile)
    return { bytes: objects.reduce((sum, { result }) => sum + (result?.bytes ?? 0), 0) }
  }),

  doStep.handle(({ payload }) => {
    if (payload.step === 'test') throw new Error('2 of 40 tests failed')
  }),

  ship.handle(async ({ payload }, ctx) => {
    await ctx.complete(async tx => {
      await tx.query('insert into shipped (step) values ($1)', [payload.step])
    })
  }),

  hopeless.handle(({ payload }) => {
    switch (payload.reason) {
      case 'throws':
        throw new Error('always')
      case 'never returns':
        return new Promise(() => undefined)
      case 'returns a bigint':
        return 1n
    }
  }),
]
