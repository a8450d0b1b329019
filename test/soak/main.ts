/**
 * `npm run soak -- --minutes 60`: producers, worker processes and a relay under a seeded nemesis, for as long as told.
 * Nothing may be lost and nothing may come from nowhere; memory and dead rows must stay bounded. The seed is printed.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import pg from 'pg'
import { startPostgres } from '../../src/dev/index.ts'
import { createProducer, defineTask, migrate } from '../../src/index.ts'

const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '5' }, seed: { type: 'string' } },
})
const minutes = Number(values.minutes)
const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31))
console.log(`soak: ${minutes} minutes, seed ${seed}`)

/** A small generator, so that a run can be repeated from its seed. */
let state = seed
const random = () => {
  state = (state + 0x6d2b79f5) | 0
  let t = Math.imul(state ^ (state >>> 15), 1 | state)
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
  return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
}

const postgres = await startPostgres({ own: true })
console.log(postgres.choice)
await migrate({ postgres: postgres.url })
const task = defineTask({
  name: 'soak',
  retry: { attempts: 20, backoff: { type: 'fixed', delay: 50, jitter: 1 } },
})

const startWorker = () => {
  const child = spawn(
    process.execPath,
    ['--import', 'tsx', 'src/cli/main.ts', 'worker', 'test/soak/worker.ts'],
    {
      env: { LONGSHORE_LOG_LEVEL: 'error', ...process.env, DATABASE_URL: postgres.url },
      stdio: ['ignore', 'ignore', 'inherit'],
    },
  )
  return child
}
const workers = [startWorker(), startWorker(), startWorker()]
const end = performance.now() + minutes * 60_000
const isOver = () => performance.now() > end

const acknowledged = new Set<string>()
const rolledBack = new Set<string>()
let refused = 0
const producer = createProducer({ postgres: postgres.url })

async function enqueueSingles() {
  while (!isOver()) {
    const refs = await Promise.allSettled(
      Array.from({ length: 20 }, (_, n) =>
        producer.enqueue(task, n, n % 5 === 0 ? { delay: random() * 500 } : {}),
      ),
    )
    for (const ref of refs) ref.status === 'fulfilled' ? acknowledged.add(ref.value.id) : refused++
    await pause(20)
  }
}

async function enqueueInTransactions() {
  while (!isOver()) {
    const client = new pg.Client(postgres.url)
    client.on('error', () => undefined) // the nemesis restarts the server
    try {
      await client.connect()
      await client.query('begin')
      const ref = await producer.enqueue(task, 'tx', { tx: client })
      await pause(random() * 200)
      const isKept = random() < 0.5
      await client.query(isKept ? 'commit' : 'rollback')
      if (isKept) acknowledged.add(ref.id)
      else rolledBack.add(ref.id)
    } catch {
      refused++ // unclear: neither acknowledged nor rolled back
    } finally {
      await client.end().catch(() => undefined)
    }
  }
}

async function nemesis() {
  while (!isOver()) {
    await pause(2000 + random() * 8000)
    if (random() < 0.3) {
      console.log('nemesis: Postgres is killed')
      await postgres.kill()
      await postgres.restart()
    } else {
      const index = Math.floor(random() * workers.length)
      const worker = workers[index]
      if (!worker) continue
      console.log(`nemesis: worker ${index} is stopped`)
      worker.kill('SIGTERM')
      await once(worker, 'exit')
      workers[index] = startWorker()
    }
  }
}

async function watch() {
  while (!isOver()) {
    await pause(30_000)
    const client = new pg.Client(postgres.url)
    client.on('error', () => undefined)
    try {
      await client.connect()
      const { rows } = await client.query(
        `select n_live_tup as live, n_dead_tup as dead, pg_total_relation_size(relid) / 1048576 as megabytes
         from pg_stat_user_tables where schemaname = 'longshore' and relname = 'jobs'`,
      )
      const heap = Math.round(process.memoryUsage().heapUsed / 1048576)
      console.log(
        `soak: ${acknowledged.size} enqueued, jobs table ${JSON.stringify(rows[0])}, heap ${heap} MB`,
      )
    } catch {
      console.log('soak: Postgres did not answer just now')
    } finally {
      await client.end().catch(() => undefined)
    }
  }
}

await Promise.all([enqueueSingles(), enqueueInTransactions(), nemesis(), watch()])

const client = new pg.Client(postgres.url)
await client.connect()
for (;;) {
  const { rows } = await client.query('select count(*)::int as n from longshore.jobs')
  if (rows[0].n === 0) break
  await pause(200)
}
const { rows } = await client.query<{ id: string; state: string }>(
  'select id, state from longshore.finished_jobs',
)
const ended = new Map(rows.map(row => [row.id, row.state]))
const lost = [...acknowledged].filter(id => !ended.has(id))
const ghosts = [...rolledBack].filter(id => ended.has(id))
const failed = rows.filter(row => row.state !== 'succeeded')
console.log(
  `soak: ${acknowledged.size} acknowledged, ${rows.length} ended, ${lost.length} lost, ${ghosts.length} from nowhere, ` +
    `${failed.length} failed, ${refused} refused`,
)
await client.end()
await producer.close()
for (const worker of workers) {
  worker.kill('SIGTERM')
  await once(worker, 'exit')
}
await postgres.stop()
process.exitCode = lost.length + ghosts.length + failed.length === 0 ? 0 : 1
