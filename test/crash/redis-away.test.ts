import { describe, expect, it } from 'vitest'
import { defineTask, type Worker } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { useRedis } from '../support/own-redis.ts'
import { noops } from '../support/process-tasks.ts'
import { counter, eventually } from '../support/signals.ts'
import { weakened } from '../support/weaken.ts'
import { useWorkerProcesses } from '../support/worker-process.ts'

const database = useDatabase()
const redis = useRedis()
const deployment = useDeployment(database, { redis })
const startProcess = useWorkerProcesses(database, deployment)

const [noop] = noops
if (!noop) throw new Error('there is no task')
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)
const allGo = (path: Worker['path'], workers: readonly Pick<Worker, 'path'>[]) =>
  eventually(`all go ${path}`, async () => workers.every(worker => worker.path === path), 30_000)

const faults = [
  {
    name: 'is down',
    begin: () => redis.server.kill(),
    end: () => redis.server.restart(),
  },
  {
    name: 'is black-holed',
    begin: async () => redis.proxy.holdAll(),
    end: async () => redis.proxy.letFlow(),
  },
  {
    // What is asked of it is done; nobody is told.
    name: 'is half open',
    begin: async () => redis.proxy.swallow('replies'),
    end: async () => redis.proxy.letFlow(),
  },
]

describe.each(faults)('Redis $name', fault => {
  it('[X3] [X2] [S10] workers go direct by themselves, what is enqueued meanwhile runs once, and they come back', async () => {
    const producer = deployment.producer({ tasks: [noop], redis: redis.url })
    await deployment.relay()
    const workers = await Promise.all([
      startProcess(),
      startProcess(),
      deployment.worker({ handlers: [noop.handle(() => undefined)] }),
    ])
    const refs = await producer.enqueueMany(noop, numbers(200))
    await fault.begin()
    // Some of these were in Redis when it went, some come while nobody has noticed yet.
    refs.push(...(await producer.enqueueMany(noop, numbers(200))))
    refs.push(await producer.enqueue(noop, 0))
    await allGo('direct', workers)
    refs.push(...(await producer.enqueueMany(noop, numbers(200))))
    await deployment.drained()

    await fault.end()
    await allGo('redis', workers)
    const later = await producer.enqueueMany(noop, numbers(100))
    await deployment.atRest({ enqueued: [...refs, ...later] })

    const runs = await deployment.runs()
    expect(runs).toHaveLength(refs.length + later.length)
    expect(runs.filter(run => run.wentTo !== 'ended')).toEqual([])
  })
})

describe('while Redis is away', () => {
  const WORKERS = 20
  const JOBS = 5
  /** By themselves they look again only long after the test: whoever looks was woken. */
  const pollInterval = 3_600_000
  const noteLooks = {
    name: 'settle_and_claim',
    point: 'start',
    insertion: 'insert into journal.looks values (p_worker);',
  }
  const ringAll = { name: 'ring', guard: 'one-for-each-job' }

  it('[X3] there is no stampede: idle workers say that they listen, and a job wakes one of them', async () => {
    const task = defineTask<number>({ name: 'quiet' })
    const done = counter()
    await database.rows('create table journal.looks (worker int not null)')
    const looks = async () => (await database.rows('select from journal.looks')).length
    const looked = async () => (await database.rows('select distinct worker from journal.looks')).length
    await weakened(database, [noteLooks], async () => {
      const workers = await Promise.all(
        numbers(WORKERS).map(() =>
          deployment.worker({
            handlers: [task.handle(() => done.add())],
            maxConcurrentTasks: 1,
            pollInterval,
          }),
        ),
      )
      const producer = deployment.producer({ tasks: [task] })
      await database.rows('truncate journal.looks')
      await redis.server.kill()
      await allGo('direct', workers)
      await allListen()
      // Each looks when it goes direct and when it says that it listens, once more after that, and again where a transaction is open that may
      // not have seen it listen. Without listening each would look every 2 ms.
      const going = await untilStill(looks)
      expect(going).toBeLessThanOrEqual(WORKERS * 8)

      await database.rows('truncate journal.looks')
      for (const n of numbers(JOBS)) {
        await producer.enqueue(task, n)
        await done.reached(n + 1)
      }
      await untilStill(looks)
      // Whoever ran the one before may have the next as well.
      expect(await looked()).toBeLessThanOrEqual(JOBS)

      // Were all of them rung, it would be seen.
      await allListen()
      await weakened(database, [ringAll], () => producer.enqueue(task, JOBS))
      await eventually('all have looked', async () => (await looked()) === WORKERS)

      await redis.server.restart()
      await allGo('redis', workers)
      await deployment.atRest()
    })
  })

  const allListen = () =>
    eventually('all of them listen', async () => {
      const rows = await database.rows('select from longshore.workers where listening')
      return rows.length === WORKERS
    })

  /** The count when it has been the same for a while: a look may follow another after 25 ms. */
  const untilStill = async (count: () => Promise<number>) => {
    let last = await count()
    let since = performance.now()
    await eventually('it is still', async () => {
      const now = await count()
      if (now !== last) since = performance.now()
      last = now
      return performance.now() - since > 500
    })
    return last
  }
})
