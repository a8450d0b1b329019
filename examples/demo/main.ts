/**
 * The demo behind `npm start`: real stores, a relay and three worker processes with different properties. Jobs are enqueued in
 * transactions, in bulk, constrained, limited, delayed and doomed, as a graph and as a workflow; Redis is emptied and a worker
 * killed in the middle. Ends by itself with an audit of what happened.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import { createProducer, type JobRef, migrate } from 'longshore'
import { startPostgres, startRedis } from 'longshore/dev'
import pg from 'pg'
import { audit } from './audit.ts'
import { submitBuild } from './build.ts'
import { showProgress } from './progress.ts'
import { watchRedis } from './redis.ts'
import {
  callPartner,
  charge,
  compile,
  doStep,
  hopeless,
  link,
  pack,
  remind,
  render,
  resize,
  ship,
} from './tasks.ts'

const began = performance.now()
const say = (line: string) => process.stdout.write(`${line}\n`)

const [postgres, redis] = await Promise.all([
  startPostgres({ own: true, progress: say }),
  startRedis({ own: true, progress: say }),
])
say(postgres.choice)
say(redis.choice)

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

const runWorker = (name: string, properties: string) =>
  run('worker', 'examples/demo/worker.ts', '--name', name, '--properties', properties, ...SMALL)
/** A short lease, so that the rescue is soon; few jobs at once, so that there is a backlog to see. */
const SMALL = ['--lease', '2s', '--max-concurrent-tasks', '30', '--claim-batch-size', '30']

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
      runWorker('anna', 'gpu=a100,mem=high'),
      runWorker('bob', 'gpu=a100'),
      runWorker('cleo', 'mem=high'),
    ])),
  )
  const client = new pg.Client(postgres.url)
  await client.connect()
  const watched = await watchRedis(redis.url, client)
  const first = await watched.isDispatching(3)
  say(`a relay and three workers run, jobs go through Redis (${Math.round(performance.now() - began)} ms)`)

  const tasks = [resize, render, charge, callPartner, pack, remind, hopeless, compile, link, doStep, ship]
  const producer = createProducer({ postgres: postgres.url, redis: redis.url, tasks })
  const progress = showProgress(client)
  const refs: JobRef[] = []
  const ended = (some: JobRef[]) =>
    Promise.all(some.map(ref => producer.waitFor(ref as JobRef<unknown>, { timeout: '60s' })))

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

  const scenes = (from: number) => Array.from({ length: 50 }, (_, n) => ({ scene: from + n }))
  refs.push(...(await producer.enqueueMany(render, scenes(0), { constraints: { gpu: 'a100' } })))
  refs.push(...(await producer.enqueueMany(render, scenes(50), { constraints: { mem: 'high' } })))
  await progress.note('100 scenes: half need gpu=a100 (anna, bob), half mem=high (anna, cleo)')

  for (let n = 0; n < 10; n++) {
    const images = Array.from({ length: 500 }, (_, i) => ({ image: 1000 + n * 500 + i, width: 90 }))
    refs.push(...(await producer.enqueueMany(resize, images, { priority: n })))
  }
  await progress.note('5,000 thumbnails in bulk, over ten priorities')

  const flushed = await watched.flush()
  await progress.note(`Redis emptied in the middle (FLUSHALL): it held ${flushed} ready jobs`)
  const second = await watched.isDispatching(3, first)
  const bellsBefore = watched.bells()
  await progress.note(
    'the relay has built Redis anew from Postgres; meanwhile workers went directly to Postgres',
  )

  const orders = Array.from({ length: 100 }, (_, order) => ({ order }))
  refs.push(...(await producer.enqueueMany(charge, orders)))
  await progress.note('100 charges, at most four at once over all workers')

  refs.push(
    ...(await Promise.all(Array.from({ length: 300 }, (_, call) => producer.enqueue(callPartner, { call })))),
  )
  await progress.note(
    '300 single enqueues at once share a few commits; a third of them fails twice and is retried',
  )

  const build = await submitBuild(producer)
  refs.push(...build.jobs)
  await progress.note(
    'a build graph: compile a, b, c, then link, then test and package beside document; clean up after all',
  )

  await client.query('create table if not exists shipped (no serial, step int not null)')
  const steps = Array.from({ length: 10 }, (_, step) =>
    producer.enqueue(ship, { step }, { workflow: 'order-17' }),
  )
  refs.push(...(await Promise.all(steps)))
  await progress.note('ten steps of order-17, a workflow: one after another, whichever worker runs them')
  await ended(refs)
  const built = await build.end()
  const outcome = Object.entries(built.states).map(([name, state]) => `${name} ${state}`)
  await progress.note(`the build ended as ${built.state}: ${outcome.join(', ')}`)

  // More than two workers have room for: the third gets its share.
  const archives = Array.from({ length: 120 }, (_, archive) => ({ archive }))
  refs.push(...(await producer.enqueueMany(pack, archives)))
  const held = await killWhileItWorks(client, 'cleo', children.at(-1) as ChildProcess)
  await progress.note(`worker cleo killed with -9 while it ran ${held.length} jobs: others rescue them`)

  for (let n = 0; n < 20; n++)
    refs.push(await producer.enqueue(remind, { dueInMs: n * 50 }, { delay: n * 50 }))
  for (const reason of ['throws', 'never returns', 'returns a bigint'] as const) {
    refs.push(await producer.enqueue(hopeless, { reason }))
  }
  const sql = await client.query<{ id: string }>(`select longshore.enqueue('remind', '{"dueInMs": 0}') as id`)
  const fromSql = String(sql.rows[0]?.id)
  await progress.note('reminders due over a second, three doomed jobs, and one enqueued from plain SQL')

  const all = [...(await ended(refs)), await producer.waitFor(fromSql, { timeout: '60s' })]
  progress.stop()
  const report = await audit({ postgres: postgres.url, redis: redis.url }, client, {
    ended: all,
    build: { ...built, ids: build.jobs.map(job => job.id) },
    rescued: held,
    mostCharges: progress.mostRunning('charge-card'),
    flushed,
    isBuiltAnew: second !== first,
    bells: { before: bellsBefore, after: watched.bells() - bellsBefore },
  })
  for (const line of report.lines) say(line)
  failed = !report.isClean
  await producer.close()
  watched.close()
  await client.end()
} finally {
  await Promise.all(children.map(stop))
  await Promise.all([postgres.stop(), redis.stop()])
}
say(`${failed ? 'FAILED' : 'done'} in ${((performance.now() - began) / 1000).toFixed(1)} s`)
process.exitCode = failed ? 1 : 0

/** Kill it as soon as it runs something. Answers the jobs that it took with it. */
async function killWhileItWorks(client: pg.Client, name: string, child: ChildProcess): Promise<string[]> {
  const running = async () => {
    const { rows } = await client.query<{ id: string }>(
      `select j.id from longshore.jobs j join longshore.workers w on w.id = j.worker_id
       where j.state = 'running' and w.name = $1`,
      [name],
    )
    return rows.map(row => row.id)
  }
  while ((await running()).length === 0) await pause(5)
  child.kill('SIGKILL')
  await once(child, 'exit')
  return running()
}
