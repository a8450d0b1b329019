/** What `/healthz` and `/readyz` of processes of their own say when a store is away, and when the event loop stands still. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { createRelay, createWorker, defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { useRedis } from '../support/own-redis.ts'
import { type StoreProxy, startProxy } from '../support/proxy.ts'
import { type Served, useServed } from '../support/scrape.ts'
import { eventually } from '../support/signals.ts'

const database = useDatabase()
const redis = useRedis()
const deployment = useDeployment(database)
const serve = useServed()
const folder = mkdtempSync(join(tmpdir(), 'longshore-health-'))
const letGo = join(folder, 'let-go')
const TASKS = 'test/support/measured-tasks.mjs'
const NOWHERE = 'postgres://127.0.0.1:1/none'
let proxy: StoreProxy
let env: Record<string, string> = {}

beforeEach(async () => {
  proxy = await startProxy(database.url)
  env = { DATABASE_URL: withPassword(proxy.url), LET_GO: letGo }
})
afterEach(() => proxy.close())
afterAll(() => rmSync(folder, { recursive: true, force: true }))

/** What must be found in no answer. */
function withPassword(text: string): string {
  const url = new URL(text)
  url.password ||= 'hush-hush'
  return url.href
}

const isReady = async (served: Served) => (await served.ask('/readyz')).body['isReady'] === true
const until = (served: Served, wanted: boolean) =>
  eventually(`it says isReady: ${wanted}`, async () => (await isReady(served)) === wanted, 30_000)

describe.each(['worker', 'relay'])('a %s', command => {
  const start = (more: Record<string, string> = {}) =>
    serve(command === 'worker' ? ['worker', TASKS] : ['relay'], { ...env, ...more })

  it('is not ready while Postgres says nothing or is gone, and says why, but alive', async () => {
    const served = await start()
    const { status, body } = await served.ask('/readyz')
    expect(status).toBe(200)
    expect(body).toMatchObject({ isReady: true, postgres: 'up', redis: 'not used' })

    proxy.holdAll()
    const answers = await Promise.all(Array.from({ length: 10 }, () => served.ask('/readyz')))
    for (const { status, body } of answers) {
      expect(status).toBe(503)
      expect(body).toMatchObject({ isReady: false, postgres: 'away: no answer in 2000 ms' })
    }
    expect(await served.ask('/healthz')).toEqual({ status: 200, body: { isAlive: true } })
    proxy.letFlow()
    await until(served, true)

    proxy.leadTo(NOWHERE)
    await until(served, false)
    const gone = await served.ask('/readyz')
    expect(gone.status).toBe(503)
    expect(gone.body['postgres']).toMatch(/^away: ./)
    expect(JSON.stringify(gone.body)).not.toContain(new URL(env['DATABASE_URL'] ?? '').password)
    expect((await served.ask('/healthz')).status).toBe(200)
    proxy.leadTo(database.url)
    await until(served, true)
  })

  it('is ready without Redis, and says what goes on meanwhile', async () => {
    const served = await start({ REDIS_URL: redis.url })
    const says = (pattern: RegExp) =>
      eventually(`redis: ${pattern}`, async () => {
        const { status, body } = await served.ask('/readyz')
        expect(status).toBe(200)
        return pattern.test(String(body['redis']))
      })
    if (command === 'worker') {
      await says(/^away \(.*\): Redis does not have the scripts .* start or upgrade the relay$/)
      const relay = createRelay({ postgres: database.urlOf('relay'), redis: redis.server.url })
      onTestFinished(() => relay.stop())
      await relay.start()
    }
    await says(/^up$/)
    redis.proxy.holdAll()
    await says(/^away \((jobs come|workers claim) directly from Postgres\): ./)
    redis.proxy.letFlow()
    await says(/^up$/)
  })

  it('is not ready at a Postgres that may only be read', async () => {
    const name = new URL(database.url).pathname.slice(1)
    const served = await start()
    await database.rows(`alter database ${name} set default_transaction_read_only = on`)
    try {
      proxy.leadTo(database.url) // the setting holds for new connections
      await until(served, false)
      await eventually('it says why', async () => {
        const { body } = await served.ask('/readyz')
        return String(body['postgres']).startsWith('away: it may only be read')
      })
    } finally {
      await database.rows(`alter database ${name} reset default_transaction_read_only`)
    }
  })
})

describe('a worker', () => {
  it('says what it is about, from before its start to after its stop', async () => {
    const worker = createWorker({
      postgres: database.urlOf('worker'),
      handlers: [defineTask<number>({ name: 'any' }).handle(() => undefined)],
    })
    const state = async () => {
      const { isReady, state } = await worker.health()
      return [isReady, state]
    }
    expect(await state()).toEqual([false, 'not started'])
    const starting = worker.start()
    expect(await state()).toEqual([false, 'starting'])
    await starting
    expect(await state()).toEqual([true, 'running'])
    // It does what it was told; to replace it would not help.
    await worker.drain()
    expect(await state()).toEqual([true, 'drained'])
    await worker.resume()
    expect(await state()).toEqual([true, 'running'])
    const stopping = worker.stop()
    await eventually('it stops', async () => (await worker.health()).state === 'stopping')
    expect((await worker.health()).isReady).toBe(false)
    await stopping
    expect(await state()).toEqual([false, 'not started'])
  })

  it('is not ready while its heart is not heard, and is again in its next life', async () => {
    const worker = createWorker({
      postgres: proxy.url,
      lease: '1s',
      handlers: [defineTask<number>({ name: 'any' }).handle(() => undefined)],
    })
    const { id } = await worker.start()
    try {
      expect(await worker.health()).toMatchObject({ isReady: true, heartbeat: 'up' })
      proxy.holdAll()
      await eventually('it is not heard', async () => {
        const { isReady, heartbeat } = await worker.health()
        return !isReady && heartbeat.startsWith('no beat was answered for ')
      })
      // Others may rescue its jobs meanwhile, or not: then it lives on.
      await database.rows("update longshore.workers set expires_at = '-infinity' where id = $1", [id])
      proxy.letFlow()
      await eventually('it is again', async () => (await worker.health()).isReady, 30_000)
    } finally {
      await worker.stop()
    }
  })

  it('answers nothing while a handler blocks the event loop, and shows it afterwards', async () => {
    const worker = await serve(['worker', TASKS], env)
    await deployment.producer().enqueue(defineTask<number>({ name: 'block' }), 1)
    await worker.cli.says('blocked\n')
    const alive = worker.url.replace('/metrics', '/healthz')
    await expect(fetch(alive, { signal: AbortSignal.timeout(1500) })).rejects.toThrow('aborted')
    writeFileSync(letGo, '')
    expect((await fetch(alive)).status).toBe(200)
    await eventually(
      'its metrics tell of it',
      async () => (await worker.scrape()).figure('longshore_worker_event_loop_lag_seconds') > 1,
    )
  })
})

describe('a relay', () => {
  it('is ready whether it leads or stands by, and says which', async () => {
    const [one, other] = [
      createRelay({ postgres: database.urlOf('relay') }),
      createRelay({ postgres: database.urlOf('relay') }),
    ]
    expect(await one.health()).toMatchObject({ isReady: false, state: 'not started' })
    await one.start()
    try {
      await eventually('it leads', async () => (await one.health()).state === 'leads')
      expect(one.metrics().isLeader).toBe(true)
      await other.start()
      expect(await other.health()).toMatchObject({ isReady: true, state: 'stands by', postgres: 'up' })
      expect(await one.health()).toMatchObject({ isReady: true, state: 'leads' })
      await one.stop()
      await eventually('the other leads', async () => (await other.health()).state === 'leads')
      expect(await one.health()).toMatchObject({ isReady: false, state: 'not started' })
    } finally {
      await Promise.all([one.stop(), other.stop()])
    }
  })
})
