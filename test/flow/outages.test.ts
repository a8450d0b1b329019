/** What producers, workers and relays say while Postgres or Redis is away: one line when it begins, one when it is over. */
import { once } from 'node:events'
import { createServer } from 'node:net'
import { pino } from 'pino'
import { afterEach, describe, expect, inject, it } from 'vitest'
import { createProducer, createRelay, createWorker, defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { type StoreProxy, startProxy } from '../support/proxy.ts'
import { eventually } from '../support/signals.ts'

const database = useDatabase()
const task = defineTask<number>({ name: 'noted' })

const ending: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const end of ending.splice(0).reverse()) await end()
})

interface Line {
  msg: string
  level: number
  err?: { message: string }
}

/** Of one process, from level `info` on. */
function capture() {
  const lines: Line[] = []
  const logger = pino({ level: 'info' }, { write: (line: string) => void lines.push(JSON.parse(line)) })
  const said = (text: string) => lines.filter(({ msg }) => msg.includes(text)).length
  return { lines, logger, said, says: (text: string) => eventually(text, async () => said(text) > 0, 60_000) }
}

/**
 * The line that tells of the outage, whatever the first sign of it was, and all others that a broken connection leads to. Others are lines of
 * their own: that another process leads meanwhile, that a queue is built anew.
 */
const BROKEN = /ECONN|EPIPE|[Cc]onnection|[Cc]losed|[Tt]erminat/
const errorsIn = (lines: Line[]) =>
  lines.flatMap(({ msg, err }) =>
    err && (/cannot be (used|reached)/.test(msg) || BROKEN.test(err.message))
      ? [`${msg}: ${err.message}`]
      : [],
  )

/** Where nothing listens. */
async function closedPort(protocol: string): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  server.close()
  await once(server, 'close')
  return `${protocol}://127.0.0.1:${port}/none`
}

async function startAll() {
  const postgres = await startProxy(database.url)
  const redis = await startProxy(inject('redisUrl'))
  ending.push(
    () => postgres.close(),
    () => redis.close(),
  )
  const logs = { producer: capture(), worker: capture(), relay: capture() }
  const where = { postgres: postgres.url, redis: redis.url }
  const relay = createRelay({ ...where, logger: logs.relay.logger })
  const worker = createWorker({
    ...where,
    logger: logs.worker.logger,
    // Longer than the outage: another life would be another story.
    lease: '60s',
    handlers: [task.handle(({ payload }) => payload)],
  })
  const producer = createProducer({ ...where, logger: logs.producer.logger })
  ending.push(
    () => relay.stop(),
    () => worker.stop({ deadline: 0 }),
    () => producer.close(),
  )
  await relay.start()
  await worker.start()
  await eventually('jobs come through Redis', async () => worker.path === 'redis', 60_000)
  expect(await producer.waitFor(await producer.enqueue(task, 1))).toMatchObject({ result: 1 })
  return { postgres, redis, logs, worker, producer }
}

/** Until clients have tried again and again to get back. */
async function cutOff(proxy: StoreProxy, protocol: string): Promise<void> {
  proxy.leadTo(await closedPort(protocol))
  const { dials } = proxy
  await eventually('many have tried again', async () => proxy.dials >= dials + 25, 60_000)
}

describe('an outage', () => {
  it('of Postgres is told once by each process, and once when it is over', async () => {
    const { postgres, logs, producer } = await startAll()
    await cutOff(postgres, 'postgres')
    postgres.leadTo(database.url)
    expect(await producer.waitFor(await producer.enqueue(task, 2))).toMatchObject({ result: 2 })
    for (const [name, { lines, said, says }] of Object.entries(logs)) {
      await says('Postgres is back')
      expect(said('Postgres cannot be reached'), name).toBe(1)
      expect(said('Postgres is back'), name).toBe(1)
      expect(errorsIn(lines), name).toHaveLength(1)
    }
  }, 120_000)

  it('of Redis is told once by each process, and once when it is over', async () => {
    const { redis, logs, worker, producer } = await startAll()
    await cutOff(redis, 'redis')
    expect(await producer.waitFor(await producer.enqueue(task, 3))).toMatchObject({ result: 3 })
    redis.leadTo(inject('redisUrl'))
    await eventually('jobs come through Redis again', async () => worker.path === 'redis', 60_000)
    for (const [name, { lines, said, says }] of Object.entries(logs)) {
      await says('Redis can be used again')
      expect(said('Redis cannot be used'), name).toBe(1)
      expect(said('Redis can be used again'), name).toBe(1)
      expect(errorsIn(lines), name).toHaveLength(1)
    }
  }, 120_000)
})
