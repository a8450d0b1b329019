import { createProducer, createWorker, defineTask, migrate } from 'longshore'

const postgres = process.env.DATABASE_URL ?? 'postgres://localhost/app'
await migrate({ postgres })

const load = defineTask<{ files: string[] }>({ name: 'load-files' })
const worker = createWorker({
  postgres,
  handlers: [
    load.handle(({ payload }, ctx) => {
      for (const [done, file] of payload.files.entries()) {
        ctx.progress(done, payload.files.length)
        if (file.endsWith('.csv')) ctx.log('loaded', { file })
        else ctx.log.warn('passed over', { file })
      }
      ctx.progress(payload.files.length, payload.files.length)
    }),
  ],
})
await worker.start()

const producer = createProducer({ postgres })
const job = await producer.enqueue(load, { files: ['a.csv', 'b.png', 'c.csv'] })
// Lines come while the job runs; the loop ends when the job has ended.
for await (const { level, message, data } of producer.followLogs(job)) {
  console.log(level, message, JSON.stringify(data))
}
const progress = await producer.getProgress(job)
console.log(progress?.done, 'of', progress?.total)

await worker.stop()
await producer.close()
