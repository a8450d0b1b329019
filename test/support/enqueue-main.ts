/**
 * A producer in a process of its own: enqueues what it is given, one after another, and says under which ids, and what it takes the time
 * to be. `runInMs` makes a run time by its own clock.
 */
import { createProducer, defineTask, type EnqueueOptions, type ProducerOptions } from '../../src/index.ts'

export interface ToEnqueue {
  task: string
  payload: number
  options?: EnqueueOptions
  runInMs?: number
}

const { jobs, ...options } = JSON.parse(process.argv[2] ?? '{}') as ProducerOptions & { jobs: ToEnqueue[] }
const producer = createProducer(options)
const ids: string[] = []
for (const { task, payload, options, runInMs } of jobs) {
  const runAt = runInMs === undefined ? {} : { runAt: new Date(Date.now() + runInMs) }
  ids.push((await producer.enqueue(defineTask<number>({ name: task }), payload, { ...options, ...runAt })).id)
}
process.stdout.write(JSON.stringify({ now: Date.now(), ids }))
await producer.close()
