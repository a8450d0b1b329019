import { createProducer, createWorker, defineTask, migrate } from 'longshore'
import pg from 'pg'
import { z } from 'zod'

const postgres = process.env.DATABASE_URL ?? 'postgres://localhost/app'
await migrate({ postgres }) // or: npx longshore migrate

// A task is shared by those who enqueue it and those who run it.
const sendReceipt = defineTask({
  name: 'send-receipt',
  payload: z.object({ orderId: z.number(), email: z.email() }),
  result: z.object({ messageId: z.string() }),
  retry: { maxAttempts: 5, backoff: 'exponential' },
  timeout: '30s',
})

// In your service: the job exists if, and only if, your transaction commits.
const producer = createProducer({ postgres, tasks: [sendReceipt] })
const client = new pg.Client(postgres)
await client.connect()
await client.query('create table if not exists orders (id serial primary key, email text not null)')
await client.query('begin')
const { rows } = await client.query(
  "insert into orders (email) values ('ada@example.com') returning id, email",
)
const job = await producer.enqueue(sendReceipt, { orderId: rows[0].id, email: rows[0].email }, { tx: client })
await client.query('commit')

// In a worker process: payload and result are typed.
const worker = createWorker({
  postgres,
  handlers: [
    sendReceipt.handle(async (job, ctx) => {
      ctx.signal.throwIfAborted()
      return { messageId: `receipt ${job.payload.orderId} for ${job.payload.email}` }
    }),
  ],
})
await worker.start()

const ended = await producer.waitFor(job, { timeout: '10s' })
console.log(ended.state, ended.state === 'succeeded' ? ended.result.messageId : ended.error)

await worker.stop()
await producer.close()
await client.end()
