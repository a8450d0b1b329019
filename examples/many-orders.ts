import { createProducer, defineTask, migrate, newJobId } from 'longshore'
import pg from 'pg'

const postgres = process.env.DATABASE_URL ?? 'postgres://localhost/app'
await migrate({ postgres })
const pool = new pg.Pool({ connectionString: postgres })
await pool.query(
  'create table if not exists parcels (job uuid primary key, customer text, is_urgent boolean)',
)

const pack = defineTask<{ customer: string; urgent: boolean }>({ name: 'pack', concurrencyPerKey: 5 })
const producer = createProducer({ postgres, tasks: [pack] })

const orders = [
  { customer: 'ada', urgent: true },
  { customer: 'bob', urgent: false },
  { customer: 'ada', urgent: false },
]
const ids = orders.map(() => newJobId())

/** The rows and their jobs: all of them or none. */
async function placeOrders() {
  const client = await pool.connect()
  try {
    await client.query('begin')
    for (const [n, { customer, urgent }] of orders.entries()) {
      const text = 'insert into parcels values ($1, $2, $3) on conflict do nothing'
      await client.query(text, [ids[n], customer, urgent])
    }
    const jobs = await producer.enqueueMany(pack, orders, {
      tx: client,
      maxAttempts: 10, // what all of them share
      each: ({ customer, urgent }, n) => ({
        id: ids[n], // once, however often this runs
        concurrencyKey: customer,
        priority: urgent ? 100 : 0,
      }),
    })
    await client.query('commit')
    return jobs.filter(job => job.isNew).length
  } catch (error) {
    await client.query('rollback')
    throw error
  } finally {
    client.release()
  }
}

console.log(await placeOrders(), 'jobs') // 3 jobs
console.log(await placeOrders(), 'jobs') // 0 jobs

await producer.close()
await pool.end()
