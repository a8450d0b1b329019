/**
 * P14: how soon is an emptied Redis of use again, with very many ready jobs? `npx tsx bench/rebuild.ts [jobs]`, by default
 * 1,000,000 over five lanes. A worker works all the time: first straight from Postgres, then through Redis again.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { Redis } from 'ioredis'
import pg from 'pg'
import { startPostgres, startRedis } from '../src/dev/index.ts'
import { createRelay, createWorker, defineTask, migrate } from '../src/index.ts'
import { registerTask, storeJobs } from './stored-jobs.ts'

const jobs = Number(process.argv[2] ?? 1_000_000)
const LANES = 5
const LIMIT_MS = 60_000
const say = (line: string) => process.stdout.write(`${line}\n`)

async function until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const giveUpAt = performance.now() + LIMIT_MS
  while (!(await holds())) {
    if (performance.now() > giveUpAt) throw new Error(`not within ${LIMIT_MS} ms: ${what}`)
    await pause(2)
  }
}

const [postgres, server] = await Promise.all([startPostgres({ own: true }), startRedis({ own: true })])
say(`${postgres.choice}\n${server.choice}`)
const client = new pg.Client(postgres.url)
await client.connect()
const redis = new Redis(server.url)
const memory = async () =>
  Number(/^used_memory:(\d+)/m.exec(await redis.info('memory'))?.[1] ?? 0) / 1024 / 1024
try {
  await migrate({ postgres: postgres.url })
  const tasks = Array.from({ length: LANES }, (_, n) => defineTask({ name: `task-${n}` }))
  const database = { query: async (text: string) => (await client.query(text)).rows } as never
  for (const { name } of tasks) await registerTask(database, name)
  await storeJobs(
    database,
    tasks.map(({ name }) => ({ task: name })),
    jobs / LANES,
  )
  await client.query('analyze')
  const before = await memory()

  const stores = { postgres: postgres.url, redis: server.url }
  const relay = createRelay(stores)
  await relay.start()
  const isFull = () => {
    const [queue] = relay.metrics().queues
    return queue?.isLive === true && queue.lanesToRead === 0
  }
  await until('the windows are full', isFull)
  say(`${jobs} ready jobs: Redis uses ${((await memory()) - before).toFixed(1)} MB for them`)

  let ran = 0
  let longestGapMs = 0
  let lastAt = performance.now()
  const worker = createWorker({
    ...stores,
    handlers: tasks.map(task =>
      task.handle(async () => {
        ran++
        longestGapMs = Math.max(longestGapMs, performance.now() - lastAt)
        lastAt = performance.now()
        await pause(10)
      }),
    ),
  })
  await worker.start()
  await until('jobs come through Redis', () => worker.path === 'redis' && ran > 5000)

  longestGapMs = 0
  const ranBefore = ran
  const flushedAt = performance.now()
  const generation = relay.metrics().queues[0]?.generation
  await redis.flushall()
  await until('a new generation is live', () => {
    const [queue] = relay.metrics().queues
    return queue?.isLive === true && queue.generation !== generation
  })
  await until('jobs come through Redis again', () => worker.path === 'redis')
  const ranAt = ran
  await until('the first job comes through Redis', () => ran > ranAt)
  say(`first job through Redis after ${Math.round(performance.now() - flushedAt)} ms`)
  await until('the windows are full', isFull)
  say(`windows full after ${Math.round(performance.now() - flushedAt)} ms`)
  say(
    `meanwhile ${ran - ranBefore} jobs began; the longest pause between two was ${Math.round(longestGapMs)} ms`,
  )
  say(`Redis uses ${((await memory()) - before).toFixed(1)} MB`)
  await worker.stop({ deadline: 0 })
  await relay.stop()
} finally {
  await client.end()
  redis.disconnect()
  await Promise.all([postgres.stop(), server.stop()])
}
