/**
 * The demo behind `npm start`: real stores, a relay and three worker processes; jobs enqueued in transactions, in bulk,
 * delayed and doomed; a worker stopped in the middle. Ends by itself with an audit of what happened.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createProducer, type JobRef, migrate } from 'longshore'
import { startPostgres, startRedis } from 'longshore/dev'
import pg from 'pg'
import { audit } from './audit.ts'
import { showProgress } from './progress.ts'
import { callPartner, hopeless, remind, resize } from './tasks.ts'

const began = performance.now()
const say = (line: string) => process.stdout.write(`${line}\n`)

const [postgres, redis] = await Promise.all([
  startPostgres({ own: true, progress: say }),
  startRedis({ own: true, progress: say }),
])
say(postgres.choice)
say(`${redis.choice}; jobs go straight through Postgres in this version`)

/** Each part runs as the process a user would run. */
function run(...args: string[]): Promise<ChildProcess> {
  const child = spawn(process.execPath, ['--import', 'tsx', 'src/cli/main.ts', ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
    // Doomed jobs are part of the show: what is logged about them would only disturb it.
    env: { LONGSHORE_LOG_LEVEL: 'error', ...process.env, DATABASE_URL: postgres.url, REDIS_URL: redis.url },
  })
  return new Promise((resolve, reject) => {
    child.stdout?.on('data', (text: Buffer) => text.includes('running') && resolve(child))
    child.on('exit', code => reject(new Error(`longshore ${args.join(' ')} ended with ${code}`)))
  })
}

async function stop(child: ChildProcess | undefined): Promise<void> {
  if (!child || child.exitCode !== null || child.signalCode !== null) return
  child.kill('SIGTERM')
  await once(child, 'exit')
}

const children: ChildProcess[] = []
let failed = false
try {
  await migrate({ postgres: postgres.url })
  children.push(
    ...(await Promise.all([
      run('relay'),
      ...['anna', 'bob', 'cleo'].map(name => run('worker', 'examples/demo/worker.ts', '--name', name)),
    ])),
  )
  say(`a relay and three workers run (${Math.round(performance.now() - began)} ms)`)

  const client = new pg.Client(postgres.url)
  await client.connect()
  const producer = createProducer({ postgres: postgres.url, tasks: [resize, callPartner, remind, hopeless] })
  const progress = showProgress(client)
  const refs: JobRef[] = []

  await client.query('create table if not exists uploads (image int primary key)')
  for (let image = 0; image < 40; image++) {
    const isCommitted = image % 2 === 0
    await client.query('begin')
    await client.query('insert into uploads values ($1)', [image])
    const ref = await producer.enqueue(resize, { image, width: 200 }, { tx: client })
    await client.query(isCommitted ? 'commit' : 'rollback')
    if (isCommitted) refs.push(ref)
  }
  await progress.note('40 uploads, each with its job in one transaction; 20 rolled back')

  for (let n = 0; n < 10; n++) {
    const images = Array.from({ length: 500 }, (_, i) => ({ image: 1000 + n * 500 + i, width: 90 }))
    refs.push(...(await producer.enqueueMany(resize, images, { priority: n })))
  }
  await progress.note('5,000 thumbnails in bulk, over ten priorities')

  await stop(children.at(-1))
  await progress.note('worker cleo stopped in the middle: what it had not finished was given back')

  refs.push(
    ...(await Promise.all(Array.from({ length: 300 }, (_, call) => producer.enqueue(callPartner, { call })))),
  )
  await progress.note(
    '300 single enqueues at once share a few commits; a third of them fails twice and is retried',
  )

  for (let n = 0; n < 20; n++)
    refs.push(await producer.enqueue(remind, { dueInMs: n * 50 }, { delay: n * 50 }))
  for (const reason of ['throws', 'never returns', 'returns a bigint'] as const) {
    refs.push(await producer.enqueue(hopeless, { reason }))
  }
  const sql = await client.query<{ id: string }>(`select longshore.enqueue('remind', '{"dueInMs": 0}') as id`)
  const fromSql = String(sql.rows[0]?.id)
  await progress.note('reminders due over a second, three doomed jobs, and one enqueued from plain SQL')

  const ended = await Promise.all([...refs, fromSql].map(ref => producer.waitFor(ref, { timeout: '20s' })))
  progress.stop()
  const report = await audit(client, ended)
  for (const line of report.lines) say(line)
  failed = !report.isClean
  await producer.close()
  await client.end()
} finally {
  await Promise.all(children.map(stop))
  await Promise.all([postgres.stop(), redis.stop()])
}
say(`${failed ? 'FAILED' : 'done'} in ${((performance.now() - began) / 1000).toFixed(1)} s`)
process.exitCode = failed ? 1 : 0
