/**
 * A worker in a process of its own whose handlers hold memory while they run. When it is stopped it prints how large its claims
 * were, how many that held much were inside at once, and how much memory was used.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { createWorker, type WorkerOptions } from '../../src/index.ts'
import { Meter } from '../../src/worker/meter.ts'
import { heavy } from './process-tasks.ts'

const options = JSON.parse(process.argv[2] ?? '{}') as Partial<WorkerOptions>
const sizes: number[] = []
const { claimed } = Meter.prototype
Meter.prototype.claimed = function (this: Meter, jobs) {
  sizes.push(jobs)
  claimed.call(this, jobs)
}

let inside = 0
let most = 0
let rss = 0
const worker = createWorker({
  ...options,
  handlers: [
    heavy.handle(async ({ payload }) => {
      const isHeavy = payload.numbers > 1000
      if (isHeavy) most = Math.max(most, ++inside)
      const held = new Array(payload.numbers).fill(0.5)
      if (payload.ms > 0) await pause(payload.ms)
      if (isHeavy) inside--
      if (held.length !== payload.numbers) throw new Error('it is gone')
    }),
  ],
})
setInterval(() => {
  rss = Math.max(rss, process.memoryUsage.rss())
}, 50).unref()
await worker.start()
process.stdout.write('running\n')
process.once('SIGTERM', async () => {
  await worker.stop()
  process.stdout.write(`${JSON.stringify({ sizes, most, rss })}\n`)
})
