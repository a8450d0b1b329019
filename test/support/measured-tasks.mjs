/** Handlers for `longshore worker`, as a user would write them, for the tests of metrics and health. */
import { existsSync } from 'node:fs'
import { defineTask } from '../../dist/index.js'

const file = process.env.LET_GO ?? ''

export default [
  defineTask({ name: 'say "hi" \\ {now}' }).handle(() => undefined),
  defineTask({ name: 'flaky', retry: { maxAttempts: 2, backoff: { type: 'fixed', delay: 0 } } }).handle(
    job => {
      if (job.attempt === 1) throw new Error('at first')
    },
  ),
  defineTask({ name: 'broken', retry: { maxAttempts: 1 } }).handle(() => {
    throw new Error('for good')
  }),
  // Until the test makes the file.
  defineTask({ name: 'held', concurrency: 5 }).handle(
    () =>
      new Promise(resolve => {
        const watcher = setInterval(() => {
          if (!existsSync(file)) return
          clearInterval(watcher)
          resolve(undefined)
        }, 5)
      }),
  ),
  defineTask({ name: 'talk' }).handle((_, ctx) => ctx.log('here')),
  // The event loop stands still meanwhile.
  defineTask({ name: 'block' }).handle(() => {
    process.stdout.write('blocked\n')
    while (!existsSync(file));
  }),
]
