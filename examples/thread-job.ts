import { createProducer, createWorker, defineTask, migrate } from 'longshore'
import { z } from 'zod'

const postgres = process.env.DATABASE_URL ?? 'postgres://localhost/app'
await migrate({ postgres })

export const countPrimes = defineTask({
  name: 'count-primes',
  payload: z.object({ upTo: z.int() }),
  result: z.object({ primes: z.number() }),
  retry: { maxAttempts: 1 },
  timeout: '2s',
})

const worker = createWorker({
  postgres,
  maxThreads: 2,
  handlers: [
    countPrimes.handle({ isolate: 'thread', module: new URL('./count-primes.ts', import.meta.url) }),
  ],
})
await worker.start()

const producer = createProducer({ postgres, tasks: [countPrimes] })
for (const upTo of [1000, 100_000, Number.MAX_SAFE_INTEGER]) {
  const job = await producer.waitFor(await producer.enqueue(countPrimes, { upTo }), { timeout: '30s' })
  console.log(upTo, job.state === 'succeeded' ? job.result.primes : job.error?.code)
}

await worker.stop()
await producer.close()
