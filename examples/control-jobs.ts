import { createProducer, createWorker, defineTask, migrate } from 'longshore'
import pg from 'pg'

const postgres = process.env.DATABASE_URL ?? 'postgres://localhost/app'
await migrate({ postgres })
const client = new pg.Client(postgres)
await client.connect()
await client.query('create table if not exists invoices (customer text not null, cents int not null)')

// At most 20 at once over all workers, and at most 2 of one customer.
const bill = defineTask<{ customer: string; cents: number }>({
  name: 'bill',
  concurrency: 20,
  concurrencyPerKey: 2,
})
const producer = createProducer({ postgres, tasks: [bill] })

const job = await producer.enqueue(
  bill,
  { customer: 'ada', cents: 4200 },
  { concurrencyKey: 'ada', delay: '1h' },
)
// Change your mind while it has not started, or cancel it in any state.
console.log(await producer.change(job, { delay: 0, priority: 10 })) // changed
const mistake = await producer.enqueue(
  bill,
  { customer: 'ada', cents: -1 },
  { concurrencyKey: 'ada', delay: '1h' },
)
console.log(await producer.cancel(mistake)) // cancelled

const worker = createWorker({
  postgres,
  handlers: [
    bill.handle(async ({ payload }, ctx) => {
      // Your writes and the end of the job in one transaction: both happen, exactly once, or neither.
      await ctx.complete(async tx => {
        await tx.query('insert into invoices values ($1, $2)', [payload.customer, payload.cents])
      })
    }),
  ],
})
await worker.start()
await producer.waitFor(job, { timeout: '10s' })
const { rows } = await client.query('select * from invoices')
console.log(rows.length, 'invoice') // 1 invoice

await worker.stop()
await producer.close()
await client.end()
