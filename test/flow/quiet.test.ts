/** How much is asked of the stores: on a Postgres of its own, since fifty workers are 250 connections. */

import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, inject, it } from 'vitest'
import { startPostgres } from '../../src/dev/index.ts'
import {
  createProducer,
  createRelay,
  createWorker,
  defineTask,
  migrate,
  type Relay,
  type Worker,
} from '../../src/index.ts'
import { auditPostgres } from '../../src/postgres/audit.ts'
import { scriptNamed } from '../../src/redis/scripts.ts'
import { countCommands, countStatements } from '../support/counting-proxy.ts'
import { lookAtQueue, type QueueLook } from '../support/queue-look.ts'
import { counter, eventually } from '../support/signals.ts'

const task = defineTask<number>({ name: 'quiet' })
const redis = inject('redisUrl')
/** Fifty workers start slowly on a machine that has other things to do. */
const LONG_MS = 60_000

let server: Awaited<ReturnType<typeof startPostgres>>
let statements: Awaited<ReturnType<typeof countStatements>>
let commands: Awaited<ReturnType<typeof countCommands>>
let looker: pg.Client
beforeAll(async () => {
  server = await startPostgres({ own: true, settings: { max_connections: 400 } })
  await migrate({ postgres: server.url })
  statements = await countStatements(server.url)
  commands = await countCommands(redis)
  looker = new pg.Client(server.url)
  await looker.connect()
})
afterAll(async () => {
  await looker.end()
  await Promise.all([statements.close(), commands.close()])
  await server.stop()
})

let workers: Worker[] = []
let relay: Relay
const ending: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const end of ending.splice(0).reverse()) await end()
  expect(await auditPostgres(looker, 'longshore', { isDrained: true })).toEqual([])
})

const rows = async <Row>(text: string) => (await looker.query(text)).rows as Row[]
const total = (counts: ReadonlyMap<string, number>) => [...counts.values()].reduce((sum, n) => sum + n, 0)
const countOf = (counts: ReadonlyMap<string, number>, part: string) =>
  total(new Map([...counts].filter(([text]) => text.includes(part))))

/** Started, and through Redis; what they ask is counted. */
async function startWorkers(count: number, onRun: () => void): Promise<QueueLook> {
  relay = createRelay({ postgres: server.url, redis })
  ending.push(() => relay.stop())
  await relay.start()
  workers = Array.from({ length: count }, () =>
    createWorker({
      postgres: statements.url,
      redis: commands.url,
      maxConcurrentTasks: 20,
      lease: '3s',
      handlers: [task.handle(onRun)],
    }),
  )
  ending.push(async () => {
    await Promise.all(workers.map(worker => worker.stop({ deadline: 0 })))
  })
  for (let at = 0; at < count; at += 10)
    await Promise.all(workers.slice(at, at + 10).map(worker => worker.start()))
  const look = await lookAtQueue({ rows }, redis)
  await eventually(
    'all are idle',
    async () => {
      if (workers.some(worker => worker.path !== 'redis')) return false
      return (await look.client.zcard((await look.keys())?.of('idle') ?? '')) === count
    },
    LONG_MS,
  )
  return look
}

describe('what is asked of the stores', () => {
  it('[S6] for 10,000 jobs on 50 workers is at most one bell a job, and far less than one call', async () => {
    const done = counter()
    const look = await startWorkers(50, () => done.add())
    // Without hints: one that overtakes the relay may make it ring for what has run meanwhile.
    const producer = createProducer({ postgres: server.url })
    ending.push(() => producer.close())
    const idle = async () => (await look.client.zcard((await look.keys())?.of('idle') ?? '')) === 50

    // One after another: each wakes one of fifty.
    // A worker that has not come after two beats, on a busy machine, is taken for one that did not hear its bell.
    const rung = () => look.bells - relay.metrics().bells
    const before = rung()
    for (let n = 1; n <= 20; n++) {
      await producer.enqueue(task, n)
      await done.reached(n)
      await eventually('all are idle again', idle, LONG_MS)
    }
    expect(rung() - before).toBe(20)

    statements.reset()
    commands.reset()
    const first = look.bells
    for (let n = 0; n < 20; n++)
      await producer.enqueueMany(
        task,
        Array.from({ length: 500 }, (_, i) => i),
      )
    await done.reached(10_020)
    await eventually('all are idle again', idle, LONG_MS)
    const bells = look.bells - first
    const takes = commands.counts.get(scriptNamed('take').sha) ?? 0
    const exchanges = countOf(statements.counts, 'settle_and_claim')
    process.stdout.write(
      `[S6] 10,000 jobs on 50 workers: ${bells} bells, ${takes} takes, ${exchanges} exchanges of ${total(statements.counts)} statements\n`,
    )
    expect(bells).toBeLessThanOrEqual(10_000)
    expect(takes).toBeLessThanOrEqual(10_000)
    expect(exchanges).toBeLessThanOrEqual(10_000)
  }, 180_000)

  it('[S6] by 20 idle workers is their heartbeat', async () => {
    const look = await startWorkers(20, () => undefined)
    let from = Number.POSITIVE_INFINITY
    // A relay beats three times a second; if one comes too late the workers leave Redis for a while, and it is measured anew.
    await eventually(
      'ten beats have passed',
      async () => {
        if (workers.some(worker => worker.path !== 'redis')) from = Number.POSITIVE_INFINITY
        else if (from === Number.POSITIVE_INFINITY) {
          from = look.beats
          statements.reset()
          commands.reset()
        }
        return look.beats >= from + 10
      },
      LONG_MS,
    )
    process.stdout.write(
      `[S6] 20 idle workers over 10 beats of the relay: ${total(statements.counts)} statements, ${total(commands.counts)} commands\n`,
    )
    expect([...statements.counts.keys()]).toEqual([
      'select is_alive, has_cancelled, is_drained from "longshore".beat($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)',
    ])
    expect(total(commands.counts)).toBe(0)
  }, 180_000)
})
