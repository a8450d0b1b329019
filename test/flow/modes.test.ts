import { setTimeout as pause } from 'node:timers/promises'
import { afterEach, describe, expect, inject, it, vi } from 'vitest'
import { createRelay, defineTask, type RelayOptions, setQueue, type WorkerOptions } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { noops } from '../support/process-tasks.ts'
import { lookAtQueue } from '../support/queue-look.ts'
import { counter, eventually, gate } from '../support/signals.ts'
import { type Cli, spawnCli } from '../support/spawn-cli.ts'
import { useWorkerProcesses } from '../support/worker-process.ts'

const redis = inject('redisUrl')
const database = useDatabase()
const deployment = useDeployment(database, { redis })
const startProcess = useWorkerProcesses(database, deployment)
const task = defineTask<number>({ name: 'spread' })
const modes = ['fanout', 'balanced'] as const
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

const look = () => lookAtQueue(database, redis)
const spreadIs = async (width: string, strategy: string) => {
  const { spread } = await look()
  await eventually(`it is spread to ${width} by ${strategy}`, async () => {
    const now = await spread()
    return now.width === width && now.strategy === strategy
  })
}
const where = { postgres: database.url }

describe('[D1] the schedule mode', () => {
  const clis: Cli[] = []
  const longshore = (args: string[], env: Record<string, string> = {}) => {
    const cli = spawnCli(args, { DATABASE_URL: database.url, REDIS_URL: redis, ...env })
    clis.push(cli)
    return cli
  }
  afterEach(async () => {
    vi.unstubAllEnvs()
    for (const { child } of clis) child.kill('SIGKILL')
    await Promise.all(clis.splice(0).map(cli => cli.ended))
  })

  it.each<[RelayOptions, string, string]>([
    [{}, '0', 'least-queue'],
    [{ fanoutWidth: 3, balanceStrategy: 'random' }, '3', 'random'],
    [{ scheduleMode: 'balanced' }, '1', 'least-queue'],
    [{ scheduleMode: 'balanced', balanceStrategy: 'round-robin', fanoutWidth: 3 }, '1', 'round-robin'],
  ])('is an option of the relay: %j', async (options, width, strategy) => {
    await deployment.producer().enqueue(task, 0)
    await deployment.relay(options)
    await spreadIs(width, strategy)
  })

  it('comes from the environment, and options win over it', async () => {
    vi.stubEnv('TASK_SCHEDULE_MODE', 'balanced')
    vi.stubEnv('TASK_BALANCE_STRATEGY', 'random')
    await deployment.producer().enqueue(task, 0)
    await deployment.relay({ balanceStrategy: 'round-robin' })
    await spreadIs('1', 'round-robin')
  })

  it('is a flag of longshore relay, which wins over the environment, and a setting of a queue wins over both', async () => {
    await deployment.producer().enqueue(task, 0)
    const env = { TASK_SCHEDULE_MODE: 'balanced', TASK_FANOUT_WIDTH: '7' }
    const relay = longshore(['relay', '--schedule-mode', 'fanout', '--balance-strategy', 'random'], env)
    await relay.says('running')
    await spreadIs('7', 'random')

    const set = longshore(['queues', 'default', '--schedule-mode', 'balanced'])
    expect((await set.ended).stdout).toBe('default: balanced\n')
    await spreadIs('1', 'random')
    await setQueue({
      ...where,
      name: 'default',
      scheduleMode: 'fanout',
      fanoutWidth: 2,
      balanceStrategy: 'round-robin',
    })
    await spreadIs('2', 'round-robin')
    expect((await longshore(['queues', 'default', '--fanout-width', '0']).ended).stdout).toBe(
      'default: fanout, round-robin, to all\n',
    )
    await spreadIs('0', 'round-robin')
    await longshore(['queues', 'default', '--default']).ended
    await spreadIs('7', 'random')
  })

  it('of a relay that follows another holds for what Redis has already', async () => {
    await deployment.producer().enqueue(task, 0)
    const earlier = createRelay({ ...where, redis })
    await earlier.start()
    await spreadIs('0', 'least-queue')
    const { keys, client } = await look()
    const before = await keys()
    await earlier.stop()
    await deployment.relay({ scheduleMode: 'balanced', queueDepth: 7, laneWindow: 70 })
    await spreadIs('1', 'least-queue')
    expect((await keys())?.generation).toBe(before?.generation)
    expect(await client.hmget(String(before?.root), 'depth', 'window')).toEqual(['7', '70'])
  })

  it('is refused if there is no such one, with the ones that there are', async () => {
    for (const [options, message] of [
      [{ scheduleMode: 'fan-out' }, 'scheduleMode must be one of fanout, balanced; got fan-out'],
      [{ balanceStrategy: 'fair' }, 'balanceStrategy must be one of least-queue, round-robin, random'],
      [{ fanoutWidth: -1 }, 'fanoutWidth must be a whole number from 0 to 1000; got -1'],
      [{ queueDepth: 0 }, /queueDepth must be a whole number from 1 to 10000; got 0/],
      [{ laneWindow: 1 }, /laneWindow must be a whole number from 2/],
    ] as const) {
      expect(() => createRelay({ ...where, ...(options as RelayOptions) })).toThrow(message)
    }
    vi.stubEnv('TASK_SCHEDULE_MODE', 'both')
    expect(() => createRelay(where)).toThrow('environment TASK_SCHEDULE_MODE must be one of')
    vi.unstubAllEnvs()
    for (const [change, message] of [
      [{ scheduleMode: 'both' }, 'scheduleMode must be one of fanout, balanced; got both'],
      [
        { balanceStrategy: 'fair' },
        'balanceStrategy must be one of least-queue, round-robin, random; got fair',
      ],
      [{ fanoutWidth: -1 }, 'fanoutWidth must be a whole number from 0 to 1000; got -1'],
      [{ mode: 'fanout' }, 'unknown option "mode"; options are postgres, schema, name, scheduleMode'],
    ] as const) {
      await expect(setQueue({ ...where, name: 'default', ...(change as object) })).rejects.toThrow(message)
    }
    for (const [args, message] of [
      [
        ['relay', '--schedule-mode', 'both'],
        'flag --schedule-mode must be one of fanout, balanced; got both',
      ],
      [['queues', 'default', '--fanout-width', 'all'], 'It must be a whole number from 0 to 1000'],
      [['queues', '--schedule-mode', 'fanout'], 'name the queue to change'],
    ] as const) {
      const { code, stderr } = await longshore([...args]).ended
      expect(stderr).toContain(message)
      expect(code).toBe(2)
    }
  })

  it('of a live queue changes under load, and every job runs once', async () => {
    await deployment.relay()
    const producer = deployment.producer()
    const ran: number[] = []
    const done = counter()
    const run = async ({ payload }: { payload: number }) => {
      await pause(1)
      ran.push(payload)
      done.add()
    }
    for (const _ of modes)
      await deployment.worker({ maxConcurrentTasks: 4, claimBatchSize: 4, handlers: [task.handle(run)] })
    const changes = [
      { scheduleMode: 'balanced' },
      { balanceStrategy: 'round-robin' },
      { scheduleMode: 'fanout' },
      { scheduleMode: 'fanout', fanoutWidth: 1, balanceStrategy: 'random' },
      { scheduleMode: 'balanced', balanceStrategy: 'least-queue', fanoutWidth: null },
    ] as const
    for (const [at, change] of changes.entries()) {
      await producer.enqueueMany(
        task,
        numbers(400).map(n => at * 400 + n),
      )
      await setQueue({ ...where, name: 'default', ...change })
      await done.reached((at + 1) * 300)
      const width = 'scheduleMode' in change && change.scheduleMode === 'balanced' ? '1' : undefined
      if (width) await spreadIs(width, 'least-queue')
    }
    await done.reached(2000)
    expect([...ran].sort((a, b) => a - b)).toEqual(numbers(2000))
  })
})

describe.each(modes)('in %s mode', scheduleMode => {
  it('[D10] jobs that were there before a worker registers run on it', async () => {
    await deployment.relay({ scheduleMode })
    const producer = deployment.producer()
    await producer.enqueueMany(task, numbers(150))
    const { jobs } = await look()
    await eventually('Redis holds them', async () => (await jobs()) === 150)
    const done = counter()
    const run = { maxConcurrentTasks: 5, handlers: [task.handle(() => done.add())] }
    await deployment.worker(run)
    await done.reached(150)

    // One that is busy holds copies; a worker that comes later takes part.
    const mayEnd = gate()
    const inside = counter()
    await deployment.worker({
      maxConcurrentTasks: 1,
      handlers: [
        task.handle(async () => {
          inside.add()
          await mayEnd.opened
        }),
      ],
    })
    await eventually('both are registered', async () => {
      const { keys, client } = await look()
      return (await client.hlen((await keys())?.of('workers') ?? '')) === 2
    })
    await producer.enqueueMany(task, numbers(50))
    await inside.reached(1)
    await done.reached(199)
    mayEnd.open()
  })

  it('[W14] three workers share 3,000 jobs of a few milliseconds within 20 % of the mean', async () => {
    await deployment.relay({ scheduleMode })
    const producer = deployment.producer()
    const done = counter()
    const shares = [0, 0, 0]
    for (const [at] of shares.entries()) {
      const run = async () => {
        await pause(3)
        shares[at] = (shares[at] ?? 0) + 1
        done.add()
      }
      await deployment.worker({ maxConcurrentTasks: 20, claimBatchSize: 20, handlers: [task.handle(run)] })
    }
    for (const _ of numbers(6)) await producer.enqueueMany(task, numbers(500))
    await done.reached(3000)
    for (const share of shares) {
      expect(share).toBeGreaterThanOrEqual(800)
      expect(share).toBeLessThanOrEqual(1200)
    }
  })
})

/** One job at once, which returns when the gate opens. */
function blocked(mayEnd: Promise<void>, done: { add(): void }): WorkerOptions {
  return {
    maxConcurrentTasks: 1,
    claimBatchSize: 1,
    handlers: [
      ...noops.map(noop =>
        noop.handle(async () => {
          await mayEnd
          done.add()
        }),
      ),
    ],
  }
}

describe('in balanced mode', () => {
  const [noop] = noops
  if (!noop) throw new Error('no task')

  it('[D11] what stood in the queue of a worker that is killed goes to another', async () => {
    await deployment.relay({ scheduleMode: 'balanced' })
    const producer = deployment.producer({ tasks: noops })
    const done = counter()
    const mayEnd = gate()
    const victim = await startProcess({ lease: '2s', maxConcurrentTasks: 1 })
    await deployment.worker(blocked(mayEnd.opened, done))
    const { queueOf, jobs } = await look()
    // So that both count as complete: each has found nothing more.
    await producer.enqueueMany(noop, numbers(2))
    await eventually('the lanes are known', async () => (await jobs()) === 0)
    victim.pause()
    await producer.enqueueMany(noop, numbers(30))
    await eventually('the victim holds copies', async () => (await queueOf(victim.id)).length > 0)
    await victim.kill()
    await eventually('its queue is gone', async () => (await queueOf(victim.id)).length === 0)
    expect(await jobs()).toBeGreaterThan(0)
    mayEnd.open()
    await eventually(
      'all have run',
      async () => (await database.rows('select from longshore.jobs limit 1')).length === 0,
    )
    const runs = await deployment.runs()
    expect(runs.filter(run => run.worker !== victim.id).length).toBeGreaterThanOrEqual(30)
  })

  it('[D14] a fast worker empties the queue of a slow one', async () => {
    await deployment.relay({ scheduleMode: 'balanced' })
    const producer = deployment.producer({ tasks: noops })
    const gates = { slow: gate(), fast: gate() }
    const done = counter()
    const slow = await deployment.worker(blocked(gates.slow.opened, done))
    const fast = await deployment.worker(blocked(gates.fast.opened, done))
    const [slowId, fastId] = [(await slow.start()).id, (await fast.start()).id]
    const { queueOf } = await look()
    await producer.enqueueMany(noop, numbers(50))
    await eventually('both hold a part', async () => {
      const [a, b] = [await queueOf(slowId), await queueOf(fastId)]
      return a.length > 10 && b.length > 10 && a.length + b.length === 48
    })
    gates.fast.open()
    await done.reached(49)
    expect(await queueOf(slowId)).toEqual([])
    gates.slow.open()
    await done.reached(50)
  })
})

describe('a worker with other properties', () => {
  it.each(modes)(
    '[C11] gives up what it does not match any more and gets what it matches, in %s mode',
    async scheduleMode => {
      await deployment.relay({ scheduleMode })
      const producer = deployment.producer()
      const mayEnd = gate()
      const inside = counter()
      const ran: number[] = []
      const done = counter()
      const worker = await deployment.worker({
        maxConcurrentTasks: 1,
        claimBatchSize: 1,
        properties: { gpu: 'a100' },
        handlers: [
          task.handle(async ({ payload }) => {
            inside.add()
            await mayEnd.opened
            ran.push(payload)
            done.add()
          }),
        ],
      })
      const { id } = await worker.start()
      const { queueOf, jobs } = await look()
      const constrained = (from: number, constraints: Record<string, string>) =>
        producer.enqueueMany(
          task,
          numbers(10).map(n => from + n),
          { constraints },
        )
      await constrained(0, { gpu: 'a100' })
      await inside.reached(1)
      await eventually('its queue holds the rest', async () => (await queueOf(id)).length === 9)
      await constrained(100, { mem: 'high' })
      await eventually('Redis knows the others', async () => (await jobs()) === 19)
      expect(await queueOf(id)).toHaveLength(9)

      await worker.setProperties({ mem: 'high' })
      expect(await queueOf(id)).toEqual([])
      expect(await jobs()).toBe(19)
      mayEnd.open()
      await done.reached(11)
      expect(ran.slice(1).sort()).toEqual(numbers(10).map(n => 100 + n))
      expect(await jobs()).toBe(9)

      await worker.setProperties({ gpu: 'a100' })
      await done.reached(20)
      expect(ran.slice(11).sort()).toEqual(numbers(10).slice(1))
    },
  )
})
