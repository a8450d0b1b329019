/**
 * A worker in a process of its own that counts who is inside its handlers. Says so when as many are inside as it has permits, and how
 * much memory that takes. SIGUSR2 lets its waiting handlers return, now and from now on; at SIGTERM it stops and tells what it saw.
 */
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import { createWorker, type WorkerOptions } from '../../src/index.ts'
import { nap, talk } from './process-tasks.ts'

const NAP_MS = 20
const options = JSON.parse(process.argv[2] ?? '{}') as Partial<WorkerOptions>
const mayReturn = once(process, 'SIGUSR2')
const mustStop = once(process, 'SIGTERM')
const seen = { inside: 0, most: 0, ran: 0, rssMb: 0 }

const inside = (work: () => Promise<unknown>) => async () => {
  if (++seen.inside > seen.most) {
    seen.most = seen.inside
    seen.rssMb = Math.max(seen.rssMb, Math.round(process.memoryUsage.rss() / 2 ** 20))
    if (seen.most === options.maxConcurrentTasks) process.stdout.write('full.\n')
  }
  await work()
  seen.inside--
  seen.ran++
}

const worker = createWorker({
  ...options,
  handlers: [talk.handle(inside(() => mayReturn)), nap.handle(inside(() => pause(NAP_MS)))],
})
await worker.start()
process.stdout.write('running.\n')
await mustStop
await worker.stop()
process.stdout.write(`${JSON.stringify(seen)}\n`)
