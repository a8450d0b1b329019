/** The tasks of the demo, shared by the process that enqueues and the processes that run. */
import { defineTask } from 'longshore'
import { z } from 'zod'

export const resize = defineTask({
  name: 'resize-image',
  payload: z.object({ image: z.number(), width: z.int().positive() }),
  result: z.object({ image: z.number(), bytes: z.number() }),
})

/** Its jobs say what they need of a worker. */
export const render = defineTask({
  name: 'render-scene',
  payload: z.object({ scene: z.number() }),
  result: z.object({ worker: z.string() }),
})

/** However many workers there are, four at once. */
export const charge = defineTask({
  name: 'charge-card',
  payload: z.object({ order: z.number() }),
  concurrency: 4,
})

export const callPartner = defineTask({
  name: 'call-partner',
  payload: z.object({ call: z.number() }),
  retry: { maxAttempts: 4, backoff: { type: 'exponential', delay: 20, max: '1s' } },
})

/** Takes so long that a worker can be killed in the middle. */
export const pack = defineTask({
  name: 'pack-archive',
  payload: z.object({ archive: z.number() }),
  result: z.object({ worker: z.string() }),
})

export const remind = defineTask({ name: 'remind', payload: z.object({ dueInMs: z.number() }) })

export const hopeless = defineTask({
  name: 'hopeless',
  payload: z.object({ reason: z.enum(['throws', 'never returns', 'returns a bigint']) }),
  retry: { maxAttempts: 1 },
  timeout: 100,
})

export const compile = defineTask({
  name: 'compile',
  payload: z.object({ source: z.string() }),
  result: z.object({ bytes: z.number() }),
})

/** Adds up what was compiled. */
export const link = defineTask({ name: 'link', payload: z.null(), result: z.object({ bytes: z.number() }) })

export const doStep = defineTask({
  name: 'build-step',
  payload: z.object({ step: z.enum(['test', 'package', 'document', 'clean up']) }),
  retry: { maxAttempts: 1 },
})

/** The steps of an order are a workflow: one after another, whoever runs them. */
export const ship = defineTask({ name: 'ship-order', payload: z.object({ step: z.number() }) })
