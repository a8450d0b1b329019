/** TLS to both stores: an authority of one's own is trusted, any other is refused. */
import { writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pino } from 'pino'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type Store, startPostgres, startRedis } from '../../src/dev/index.ts'
import { createProducer, createRelay, createWorker, defineTask, migrate } from '../../src/index.ts'
import { eventually } from '../support/signals.ts'

let postgres: Store
let redis: Store
let folder: string
const authority = (name: string) => join(folder, `${name}.pem`)

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'longshore-tls-'))
  ;[postgres, redis] = await Promise.all([
    startPostgres({ own: true, tls: true }),
    startRedis({ own: true, tls: true }),
  ])
  writeFileSync(authority('postgres'), String(postgres.ca))
  writeFileSync(authority('redis'), String(redis.ca))
  await migrate({ postgres: verified('postgres') })
})
afterAll(async () => {
  await Promise.all([postgres?.stop(), redis?.stop()])
  await rm(folder, { recursive: true, force: true })
})

/** By the authority of the store with this name; `host`: what the certificate must be for. */
const verified = (name: 'postgres' | 'redis', host = '127.0.0.1') => {
  const url = new URL(postgres.url)
  url.hostname = host
  url.searchParams.set('sslmode', 'verify-full')
  url.searchParams.set('sslrootcert', authority(name))
  return url.href
}
const redisWith = (ca: string | undefined) => ({ url: redis.url, options: { tls: { ca: String(ca) } } })
const task = defineTask<string, string>({ name: 'over tls' })
const silent = pino({ level: 'silent' })

it('[X7] producer, relay and worker run a job with verify-full to Postgres and rediss to Redis', async () => {
  expect(redis.url).toMatch(/^rediss:/)
  const ways = { postgres: verified('postgres'), redis: redisWith(redis.ca), logger: silent }
  const relay = createRelay(ways)
  const worker = createWorker({ ...ways, handlers: [task.handle(({ payload }) => `${payload} there`)] })
  const producer = createProducer({ ...ways, tasks: [task] })
  try {
    await relay.start()
    await worker.start()
    await eventually('jobs come through Redis', async () => worker.path === 'redis')
    const job = await producer.enqueue(task, 'hello')
    expect(await producer.waitFor(job)).toMatchObject({ state: 'succeeded', result: 'hello there' })
    // Every connection: pool, listener, heartbeat.
    const plain = await producer.enqueue(task, 'still')
    await producer.waitFor(plain)
  } finally {
    await worker.stop()
    await relay.stop()
    await producer.close()
  }
})

it('[X7] Postgres with a certificate of another authority is refused, by each of them', async () => {
  const ways = { postgres: verified('redis'), logger: silent }
  const producer = createProducer(ways)
  const untrusted = {
    code: 'STORE_UNAVAILABLE',
    message: expect.stringMatching(/certificate .* not trusted.*sslrootcert/),
  }
  await expect(producer.enqueue(task, '')).rejects.toMatchObject(untrusted)
  await producer.close()
  const worker = createWorker({ ...ways, redis: '', handlers: [task.handle(() => '')] })
  await expect(worker.start()).rejects.toMatchObject(untrusted)
  const relay = createRelay({ ...ways, redis: '' })
  await expect(relay.start()).rejects.toMatchObject(untrusted)
  await expect(migrate({ postgres: verified('redis') })).rejects.toMatchObject(untrusted)
})

it('[X7] Redis with a certificate of another authority is refused: jobs go directly through Postgres', async () => {
  const told = () => {
    const lines: string[] = []
    return { lines, logger: pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) }) }
  }
  const ways = { postgres: verified('postgres'), redis: redisWith(postgres.ca) }
  const [byRelay, byWorker] = [told(), told()]
  const relay = createRelay({ ...ways, logger: byRelay.logger })
  const worker = createWorker({
    ...ways,
    logger: byWorker.logger,
    handlers: [task.handle(({ payload }) => payload)],
  })
  const producer = createProducer({ postgres: ways.postgres, logger: silent })
  try {
    await relay.start()
    await worker.start()
    const job = await producer.enqueue(task, 'direct')
    expect(await producer.waitFor(job)).toMatchObject({ state: 'succeeded' })
    expect(worker.path).toBe('direct')
    expect(byRelay.lines.join('\n')).toMatch(/certificate/)
    await eventually('the worker says so', async () =>
      byWorker.lines.some(line =>
        /certificate.*Redis cannot be used: jobs come directly from Postgres/.test(line),
      ),
    )
  } finally {
    await worker.stop()
    await relay.stop()
    await producer.close()
  }
})
