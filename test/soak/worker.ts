/** What the workers of the soak do: mostly nothing, sometimes slowly, sometimes failing. */
import { setTimeout as pause } from 'node:timers/promises'
import { defineTask } from '../../src/index.ts'

const task = defineTask({
  name: 'soak',
  retry: { attempts: 20, backoff: { type: 'fixed', delay: 50, jitter: 1 } },
})

export const handlers = [
  task.handle(async () => {
    if (Math.random() < 0.05) throw new Error('one in twenty')
    if (Math.random() < 0.2) await pause(Math.random() * 100)
  }),
]
