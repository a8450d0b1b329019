import type { Worker as Thread } from 'node:worker_threads'
import { pino } from 'pino'
import { afterEach, describe, expect, it } from 'vitest'
import { createWorker, defineTask, NonRetryableError, type WorkerOptions } from '../../src/index.ts'
import { portableConfig, startHeartbeat } from '../../src/postgres/heartbeat.ts'
import { newSecret } from '../../src/postgres/secret.ts'
import { workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { counter, eventually, gate } from '../support/signals.ts'
import { type Cli, spawnScript } from '../support/spawn-cli.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const block = defineTask<number>({ name: 'block' })
const task = defineTask<string>({ name: 'beat' })

const processes: Cli[] = []
afterEach(async () => {
  for (const { child } of processes) child.kill('SIGKILL')
  await Promise.all(processes.splice(0).map(cli => cli.ended))
})

async function startProcess(options: Partial<WorkerOptions>): Promise<Cli> {
  const args = [JSON.stringify({ postgres: database.urlOf('worker'), ...options })]
  const cli = spawnScript('test/support/blocking-worker.ts', args)
  processes.push(cli)
  await cli.says('running')
  return cli
}

interface Row {
  id: number
  lives: boolean
}
const workers = () =>
  database.rows<Row>(
    `select id, dead_at is null and expires_at > clock_timestamp() as lives from longshore.workers order by id`,
  )
const lives = async () => (await workers()).filter(row => row.lives)

/** The backends that beat. */
const hearts = async () =>
  (
    await database.rows<{ pid: number }>(
      `select pid from pg_stat_activity where datname = current_database() and query like '%beat($1,%'
       and pid <> pg_backend_pid()`,
    )
  ).map(row => row.pid)

async function heart(): Promise<number> {
  let pid: number | undefined
  await eventually('a heart beats', async () => {
    pid = (await hearts())[0]
    return pid !== undefined
  })
  return pid as number
}

const giveUp = (id: number) =>
  database.rows('update longshore.workers set dead_at = clock_timestamp() where id = $1', [id])

/** A logger; `says` resolves when so many of its lines contain the text. */
function listeningLogger() {
  const lines: string[] = []
  const checks: (() => void)[] = []
  const logger = pino(
    { level: 'debug' },
    {
      write(line: string) {
        lines.push(line)
        for (const check of checks) check()
      },
    },
  )
  const count = (text: string) => lines.filter(line => line.includes(text)).length
  const says = (text: string, times = 1) =>
    new Promise<void>(resolve => {
      const check = () => {
        if (count(text) >= times) resolve()
      }
      checks.push(check)
      check()
    })
  return { logger, says, count }
}

describe('the heartbeat', () => {
  it('[W12] stores what the worker has room for and how it fares, for SQL to read', async () => {
    const producer = deployment.producer()
    const inside = counter()
    const open = gate()
    await deployment.worker({
      lease: 300,
      maxConcurrentTasks: 7,
      handlers: [
        task.handle(async job => {
          if (job.payload === 'bad') throw new NonRetryableError('no')
          inside.add()
          await open.opened
        }),
      ],
    })
    const status = () =>
      database.rows(
        `select state, in_flight, available_capacity, max_capacity, completed, failed, memory_usage > 0 and memory_usage <= 1 as uses,
           event_loop_lag_ms >= 0 as lags, beat_at <= clock_timestamp() as beats
         from longshore.worker_status`,
      )
    const idle = {
      state: 'live',
      in_flight: 0,
      available_capacity: 7,
      max_capacity: 7,
      uses: true,
      lags: true,
    }
    expect(await status()).toMatchObject([{ ...idle, completed: '0', failed: '0', beats: true }])
    await producer.enqueueMany(task, ['a', 'b', 'bad'])
    await inside.reached(2)
    await eventually('a beat tells', async () => {
      const [row] = await status()
      return row?.['in_flight'] === 2 && row['available_capacity'] === 5 && row['failed'] === '1'
    })
    open.open()
    await eventually('so does a later one', async () => {
      const [row] = await status()
      return row?.['available_capacity'] === 7 && row['completed'] === '3'
    })
  })

  it('[W12] tells the lag of an event loop that is blocked, while it is', async () => {
    const producer = deployment.producer()
    const process = await startProcess({ lease: '300ms' })
    await producer.enqueue(block, 4000)
    await process.says('blocked')
    let isBlocked = true
    const freed = process.says('free').then(() => {
      isBlocked = false
    })
    await eventually('its lag grows beyond a second', async () => {
      const [row] = await database.rows<{ lags: boolean }>(
        'select event_loop_lag_ms > 1000 as lags from longshore.workers',
      )
      return row?.lags === true
    })
    expect(isBlocked).toBe(true)
    await freed
    await eventually('and falls again', async () => {
      const [row] = await database.rows<{ lags: boolean }>(
        'select event_loop_lag_ms > 500 as lags from longshore.workers',
      )
      return row?.lags === false
    })
  })

  it('[W12] stops when the main thread is stuck for longer than `stall`, and goes on when it runs again', async () => {
    const producer = deployment.producer()
    const process = await startProcess({ lease: '1s', stall: 300 })
    await producer.enqueue(block, 6000)
    await process.says('blocked')
    let isBlocked = true
    const freed = process.says('free').then(() => {
      isBlocked = false
    })
    await eventually('its lease runs out', async () => (await lives()).length === 0)
    expect(isBlocked).toBe(true)
    await freed
    await eventually('it lives', async () => (await lives()).length === 1)
    await producer.waitFor(await producer.enqueue(block, 0))
  })

  it('[W12] replaces a connection that breaks before the lease ends', async () => {
    await deployment.worker({ lease: '3s', handlers: [task.handle(() => undefined)] })
    const [before] = await workers()
    for (let n = 1; n <= 2; n++) {
      const pid = await heart()
      await database.rows('select pg_terminate_backend($1)', [pid])
      await eventually('another heart beats', async () => (await hearts()).some(other => other !== pid))
      expect(await lives()).toMatchObject([{ id: before?.id }])
    }
  })

  it('[W5] listens again at once when its connection is lost, however long the lease', async () => {
    const ran = counter()
    const producer = deployment.producer({ tasks: [task] })
    await deployment.worker({ lease: '1h', pollInterval: '1h', handlers: [task.handle(() => ran.add())] })
    const pid = await heart()
    // While its connection is away nothing rings: it looks when it has another.
    await database.rows('select pg_terminate_backend($1)', [pid])
    await producer.enqueue(task, 'meanwhile')
    await ran.reached(1)
    await eventually('another beats', async () => (await hearts()).some(other => other !== pid))
    await producer.enqueue(task, 'then')
    await ran.reached(2)
  })

  it('[W12] starts its thread again when that ends', async () => {
    const threads: Thread[] = []
    const onThread = (thread: Thread) => threads.push(thread)
    process.on('worker', onThread)
    const { logger, says } = listeningLogger()
    await deployment.worker({ lease: '3s', logger, handlers: [task.handle(() => undefined)] })
    const pid = await heart()
    await threads[0]?.terminate()
    await says('it is started again')
    await eventually('another heart beats', async () => (await hearts()).some(other => other !== pid))
    process.off('worker', onThread)
    expect(threads).toHaveLength(2)
    expect(await lives()).toHaveLength(1)
  })

  it('[S13] tells at each beat that jobs were cancelled, and once that the life is over', async () => {
    const producer = deployment.producer()
    const worker = await workByHand(database, ['beat'])
    await producer.enqueue(task, 'any')
    await worker.claim(1)
    const secret = newSecret()
    await database.rows('update longshore.workers set secret = sha256($1)', [secret])
    const cancelled = counter()
    const dead = counter()
    const heartbeat = startHeartbeat({
      postgres: database.urlOf('worker'),
      schema: 'longshore',
      worker: { id: worker.id, secret },
      channels: [],
      onNotify: () => undefined,
      onGap: () => undefined,
      onPooled: () => undefined,
      leaseMs: 300,
      stallMs: 60_000,
      onDead: () => dead.add(),
      onDrained: () => undefined,
      figures: () => ({
        ...{ available: 3, max: 4, memory: 0.5, lagMs: 1.5, completed: 7, failed: 2 },
        ...{ stuck: 1, stuckMs: 500 },
      }),
      onCancelled: () => cancelled.add(),
      onError: () => undefined,
      onAgain: () => undefined,
    })
    await heartbeat.begun
    expect(cancelled.count).toBe(0)
    await database.rows('update longshore.jobs set is_cancelled = true')
    await cancelled.reached(2)
    await giveUp(worker.id)
    await dead.reached(1)
    await eventually('it has closed its connection', async () => (await hearts()).length === 0)
    await heartbeat.stop()
    expect(dead.count).toBe(1)
  })

  it('[W12] asks a password function each time it connects', async () => {
    const url = new URL(database.urlOf('worker'))
    const asked = counter()
    await deployment.worker({
      lease: '3s',
      postgres: {
        host: url.hostname,
        port: Number(url.port),
        user: decodeURIComponent(url.username),
        database: url.pathname.slice(1),
        password: async () => {
          asked.add()
          return decodeURIComponent(url.password) || 'none needed'
        },
      },
      handlers: [task.handle(() => undefined)],
    })
    const before = asked.count
    expect(before).toBeGreaterThan(0)
    await database.rows('select pg_terminate_backend($1)', [await heart()])
    await asked.reached(before + 1)
  })

  it('[W12] refuses settings that a thread cannot be given, and leases that make no sense', () => {
    const make = (options: Partial<WorkerOptions>) => () =>
      createWorker({
        postgres: database.urlOf('worker'),
        handlers: [task.handle(() => undefined)],
        ...options,
      })
    const ssl = { ca: 'certificate', checkServerIdentity: () => undefined }
    expect(make({ postgres: { host: 'db', ssl } })).toThrow('ssl.checkServerIdentity cannot be handed')
    // The driver hides a key that it has seen.
    const hidden = Object.defineProperty({ ca: 'certificate' }, 'key', { value: 'secret', enumerable: false })
    expect(portableConfig({ host: 'db', ssl: hidden }).config.ssl).toEqual({
      ca: 'certificate',
      key: 'secret',
    })
    expect(make({ lease: 99 })).toThrow(/lease must be a duration from 100ms to 1h.*; got 99/)
    expect(make({ lease: '2h' })).toThrow('lease must be')
    expect(make({ stall: 0 })).toThrow('stall must be')
  })

  it('[W16] leaves nothing behind that keeps a stopped process alive', async () => {
    const process = await startProcess({})
    process.child.kill('SIGTERM')
    await process.says('stopped')
    expect(await process.ended).toMatchObject({ code: 0 })
    expect(await workers()).toEqual([])
  })
})

describe('a worker that lost its lease', () => {
  it.each([
    ['was given up', giveUp],
    ['is gone', (id: number) => database.rows('delete from longshore.workers where id = $1', [id])],
  ])('[S7] [W12] begins a second life when its row %s, and runs jobs', async (how, kill) => {
    if (how === 'is gone')
      deployment.skipAudit('nobody rescues what runs under a row that is deleted by hand')
    const producer = deployment.producer()
    const inside = counter()
    const reasons: unknown[] = []
    const worker = await deployment.worker({
      lease: 300,
      handlers: [
        task.handle(({ payload }, { signal }) => {
          if (payload !== 'wait') return payload
          inside.add()
          return new Promise((_, reject) =>
            signal.addEventListener('abort', () => {
              reasons.push(signal.reason)
              reject(signal.reason)
            }),
          )
        }),
      ],
    })
    const { id } = await worker.start()
    const lost = await producer.enqueue(task, 'wait', { maxAttempts: 1 })
    await inside.reached(1)
    await kill(id)
    await eventually('it has begun a second life', async () => (await worker.start()).id !== id)
    const ref = await producer.enqueue(task, 'still here')
    expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded', result: 'still here' })
    expect(reasons).toEqual([expect.objectContaining({ code: 'LEASE_LOST' })])
    expect(await database.rows('select from longshore.finished_jobs where id = $1', [lost.id])).toEqual([])
  })

  it('[W3] keeps the permits of handlers that are still inside', async () => {
    const producer = deployment.producer()
    const inside = counter()
    const mayReturn = gate()
    const worker = await deployment.worker({
      lease: 300,
      maxConcurrentTasks: 1,
      abortGrace: 10,
      handlers: [
        task.handle(async () => {
          inside.add()
          await mayReturn.opened
        }),
      ],
    })
    const { id } = await worker.start()
    await producer.enqueue(task, 'stuck')
    await inside.reached(1)
    await giveUp(id)
    await eventually('it has begun a second life', async () => (await worker.start()).id !== id)
    const ref = await producer.enqueue(task, 'next')
    expect(await producer.get(ref)).toMatchObject({ state: 'ready' })
    expect(inside.count).toBe(1)
    mayReturn.open()
    await producer.waitFor(ref)
  })

  it('[W12] tries until it can begin again, and may be stopped meanwhile', async () => {
    const { logger, says, count } = listeningLogger()
    const producer = deployment.producer()
    const worker = await deployment.worker({
      lease: 300,
      logger,
      handlers: [task.handle(({ payload }) => payload)],
    })
    const { id } = await worker.start()
    await database.rows('alter function longshore.register_worker rename to absent')
    await giveUp(id)
    await says('could not begin a new life')
    await worker.stop()
    expect((await workers()).filter(row => row.id > id)).toEqual([])
    await eventually('nobody is connected', async () => (await hearts()).length === 0)

    await database.rows('alter function longshore.absent rename to register_worker')
    const again = await worker.start()
    await database.rows('alter function longshore.register_worker rename to absent')
    const before = count('could not begin a new life')
    await giveUp(again.id)
    await says('could not begin a new life', before + 1)
    await database.rows('alter function longshore.absent rename to register_worker')
    await eventually('it has begun again', async () => (await worker.start()).id !== again.id)
    await producer.waitFor(await producer.enqueue(task, 'any'))
  })

  it('[W16] leaves no row and no connection behind when it is stopped at any moment of the change', async () => {
    for (let n = 0; n < 8; n++) {
      const { logger, says } = listeningLogger()
      const worker = createWorker({
        postgres: database.urlOf('worker'),
        lease: 100,
        logger,
        handlers: [task.handle(() => undefined)],
      })
      const { id } = await worker.start()
      await giveUp(id)
      await says('begins anew')
      // No event marks the steps of the change, so its moments are sampled.
      await new Promise(resolve => setTimeout(resolve, n * 15))
      await worker.stop()
      expect((await workers()).filter(row => row.id > id)).toEqual([])
      await database.rows('truncate longshore.workers')
    }
    await eventually(
      'nobody is connected',
      async () =>
        (
          await database.rows(
            `select from pg_stat_activity where datname = current_database() and application_name = 'longshore'`,
          )
        ).length === 0,
    )
  })
})
