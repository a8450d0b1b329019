/** The tasks of the demo, shared by the process that enqueues and the processes that run. */
import { defineTask } from 'longshore'
import { z } from 'zod'

export const resize = defineTask({
  name: 'resize-image',
  payload: z.object({ image: z.number(), width: z.int().positive() }),
  result: z.object({ image: z.number(), bytes: z.number() }),
})

export const callPartner = defineTask({
  name: 'call-partner',
  payload: z.object({ call: z.number() }),
  retry: { attempts: 4, backoff: { type: 'exponential', delay: 20, max: '1s' } },
})

export const remind = defineTask({ name: 'remind', payload: z.object({ dueInMs: z.number() }) })

export const hopeless = defineTask({
  name: 'hopeless',
  payload: z.object({ reason: z.enum(['throws', 'never returns', 'returns a bigint']) }),
  retry: { attempts: 1 },
  timeout: 100,
})
