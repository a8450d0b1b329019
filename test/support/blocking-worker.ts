/**
 * A worker in a process of its own, whose handler blocks the event loop for as many milliseconds as its payload says.
 * Stops at SIGTERM, and does not exit by itself: nothing it leaves behind may keep the process alive.
 */
import { once } from 'node:events'
import { createWorker, defineTask, type WorkerOptions } from '../../src/index.ts'

const block = defineTask<number>({ name: 'block' })
const options = JSON.parse(process.argv[2] ?? '{}') as Partial<WorkerOptions>

const worker = createWorker({
  ...options,
  handlers: [
    block.handle(({ payload }) => {
      process.stdout.write('blocked\n')
      const end = performance.now() + payload
      while (performance.now() < end);
      process.stdout.write('free\n')
    }),
  ],
})
const { id } = await worker.start()
const mustStop = once(process, 'SIGTERM')
process.stdout.write(`running ${id}\n`)
await mustStop
await worker.stop()
process.stdout.write('stopped\n')
