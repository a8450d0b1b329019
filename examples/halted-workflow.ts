import { createProducer, createWorker, defineTask, migrate } from 'longshore'

const postgres = process.env.DATABASE_URL ?? 'postgres://localhost/app'
await migrate({ postgres })

const transfer = defineTask<{ cents: number }>({ name: 'transfer', retry: { maxAttempts: 1 } })
const producer = createProducer({ postgres })

const halting = { workflow: 'account-5', onWorkflowFailure: 'halt' } as const
const first = await producer.enqueue(transfer, { cents: -1 }, halting)
const second = await producer.enqueue(transfer, { cents: 200 }, halting)

const worker = createWorker({
  postgres,
  handlers: [
    transfer.handle(({ payload }) => {
      if (payload.cents < 0) throw new Error('an amount is positive')
    }),
  ],
})
await worker.start()

console.log((await producer.waitFor(first)).state) // failed
console.log((await producer.get(second))?.state) // waiting
console.log(await producer.resumeWorkflow('account-5')) // resumed
console.log((await producer.waitFor(second)).state) // succeeded

await worker.stop()
await producer.close()
