/**
 * A worker in a process of its own that handles the tasks of `process-tasks.ts`. SIGUSR2 lets its waiting handlers return,
 * now and from now on.
 */
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import { createWorker, NonRetryableError, type WorkerOptions } from '../../src/index.ts'
import { answer, block, nap, noops, part, poison, talk, tenant, wait } from './process-tasks.ts'

const NAP_MS = 30
const TENANT_MS = 3
const options = JSON.parse(process.argv[2] ?? '{}') as Partial<WorkerOptions>
const mayReturn = once(process, 'SIGUSR2')

const worker = createWorker({
  abortGrace: '1h',
  ...options,
  handlers: [
    ...noops.map(task => task.handle(() => undefined)),
    wait.handle(async () => {
      await mayReturn
    }),
    talk.handle(async (_, ctx) => {
      ctx.log('begun')
      ctx.progress(1, 2)
      await mayReturn
    }),
    answer.handle(async ({ payload }) => {
      await mayReturn
      return payload.replace('NUL', '\u0000')
    }),
    block.handle(({ payload }) => {
      process.stdout.write('blocked.\n')
      const end = performance.now() + payload
      while (performance.now() < end);
      process.stdout.write('free.\n')
    }),
    nap.handle(() => pause(NAP_MS)),
    tenant.handle(async ({ payload, attempt }) => {
      await pause(TENANT_MS)
      if (payload % 7 === 0 && attempt === 1) throw new Error('now and then')
    }),
    part.handle(async ({ id, payload, attempt }, ctx) => {
      await pause(payload.ms)
      if (payload.way === 'fail') throw new NonRetryableError('as planned')
      if (payload.way === 'flaky' && attempt === 1) throw new Error('now and then')
      if (payload.way === 'complete')
        await ctx.complete(async tx => {
          await tx.query('insert into effects (job_id) values ($1)', [id])
        })
    }),
    poison.handle(() => process.kill(process.pid, 'SIGKILL')),
  ],
})
const { id } = await worker.start()
process.stdout.write(`running ${id}.\n`)
let path = worker.path
if (path === 'redis') process.stdout.write('through redis\n')
setInterval(() => {
  if (worker.path === path) return
  path = worker.path
  process.stdout.write(path === 'redis' ? 'through redis\n' : 'direct\n')
}, 10).unref()
await once(process, 'SIGTERM')
const stopped = worker.stop()
setImmediate(() => process.stdout.write('stopping.\n'))
await stopped
