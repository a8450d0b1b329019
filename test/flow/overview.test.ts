/** The look at a whole deployment tells what is there. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { openPool, type Pool } from '../../src/postgres/connect.ts'
import { readOverview } from '../../src/postgres/read-overview.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { eventually, gate } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)

let pool: Pool
beforeAll(() => {
  pool = openPool(database.urlOf('reader'), 1, () => undefined)
})
afterAll(() => pool.end())

const look = () => readOverview(pool, 'longshore')
const exactly = (count: number) => ({ count, is: 'exact' })

describe('the overview', () => {
  it('[W12] is empty where nothing is', async () => {
    expect(await look()).toMatchObject({
      dispatch: 'direct',
      queues: [],
      workers: [],
      limits: [],
      groups: { unfinished: exactly(0), stuck: exactly(0), shown: [] },
      upkeep: { leader: null },
      outbox: { rows: exactly(0), oldestMs: 0 },
    })
  })

  it('[W12] tells queues, workers, limits, groups and the upkeep as they are', async () => {
    const hold = gate()
    const resize = defineTask<number>({
      name: 'resize',
      queue: 'images',
      concurrency: 3,
      concurrencyPerKey: 2,
    })
    const report = defineTask<number>({ name: 'report' })
    const producer = deployment.producer({ tasks: [resize, report] })
    const worker = await deployment.worker({
      handlers: [resize.handle(() => hold.opened)],
      name: 'ada',
      tags: ['default', 'fast'],
      properties: { gpu: 'a100' },
      maxConcurrentTasks: 10,
      lease: '600ms',
    })
    try {
      for (let n = 0; n < 4; n++) await producer.enqueue(resize, n, { concurrencyKey: 'tenant' })
      await producer.enqueue(resize, 9)
      await producer.enqueue(report, 1, { runAt: new Date(Date.now() - 60_000), priority: 1 })
      await producer.enqueue(report, 2, { runAt: new Date(Date.now() - 90_000) })
      await producer.enqueue(report, 3, { runAt: new Date('2100-01-01') })
      const graph = producer.group({ name: 'nightly' })
      graph.add(report, 5, { after: [graph.add(report, 4)] })
      const group = await graph.submit()
      await eventually('three run, and a beat has told it', async () => {
        const [seen] = (await look()).workers
        return seen?.inFlight === 3
      })

      const overview = await look()
      const queues = new Map(overview.queues.map(queue => [queue.name, queue]))
      expect(queues.get('images')).toMatchObject({
        ready: exactly(2),
        scheduled: exactly(0),
        waiting: exactly(0),
        running: exactly(3),
        overdueMs: 0,
      })
      expect(queues.get('default')).toMatchObject({
        ready: exactly(3),
        scheduled: exactly(1),
        waiting: exactly(1),
        running: exactly(0),
        overdueMs: 0,
      })
      // The older one is less urgent.
      expect(queues.get('default')?.oldestReadyMs).toBeGreaterThanOrEqual(90_000)
      expect(overview.workers).toMatchObject([
        {
          name: 'ada',
          state: 'live',
          inFlight: 3,
          capacity: 10,
          memory: expect.any(Number),
          eventLoopLagMs: expect.any(Number),
          completed: 0,
          failed: 0,
          queues: ['images'],
          tasks: ['resize'],
          tags: ['default', 'fast'],
          properties: { gpu: 'a100' },
        },
      ])
      expect(overview.limits).toEqual([
        { task: 'resize', key: '', capacity: 3, used: 3 },
        { task: 'resize', key: 'tenant', capacity: 2, used: 2 },
      ])
      expect(overview.groups).toMatchObject({
        unfinished: exactly(1),
        stuck: exactly(0),
        shown: [{ id: group.id, name: 'nightly', isStuck: false, left: exactly(2) }],
      })
      expect(overview.upkeep).toMatchObject({ leader: expect.stringMatching(/^worker \d+$/), rank: 'worker' })
    } finally {
      hold.open()
    }
    await eventually('Postgres counts what was enqueued and has ended', async () => {
      const { totals } = await look()
      return totals.enqueued >= 10 && totals.ended >= 5
    })
    await worker.stop()
    expect((await look()).workers).toEqual([])
  })

  it('[W12] names stuck groups first, workers that died, and what Redis does not know yet', async () => {
    deployment.skipAudit('the rows are made by hand')
    await database.rows(
      `insert into longshore.groups (id, name, created_at, stuck)
       values (gen_random_uuid(), 'older', now() - interval '1 day', null), (gen_random_uuid(), 'stuck', now(), '{"since": "", "jobs": []}')`,
    )
    await database.rows(
      `insert into longshore.workers (name, queues, tasks, tags, constraint_tags, expires_at, drained_at)
       values ('gone', '{default}', '{x}', '{default}', '{c:}', now() - interval '1 second', null),
         ('drained', '{default}', '{x}', '{default}', '{c:}', now() + interval '1 hour', now()),
         ('live', '{default}', '{x}', '{default}', '{c:}', now() + interval '1 hour', null)`,
    )
    await database.rows(
      "insert into longshore.outbox (created_at) values (now() - interval '1 minute'), (now())",
    )
    const { groups, workers, outbox } = await look()
    expect(groups.stuck).toEqual(exactly(1))
    expect(groups.shown.map(({ name }) => name)).toEqual(['stuck', 'older'])
    expect(workers.map(({ name, state }) => [name, state])).toEqual([
      ['live', 'live'],
      ['drained', 'drained'],
      ['gone', 'dead'],
    ])
    expect(workers[0]).toMatchObject({ inFlight: null, capacity: null, memory: null, completed: null })
    expect(outbox.rows).toEqual(exactly(2))
    expect(outbox.oldestMs).toBeGreaterThanOrEqual(60_000)
  })

  it('[W12] waits for nothing for long', async () => {
    const locker = await database.connect()
    await locker.query('begin; lock table longshore.settings in access exclusive mode')
    await expect(readOverview(pool, 'longshore', { timeoutMs: 50 })).rejects.toThrow(/statement timeout/)
    await locker.query('rollback')
    await expect(look()).resolves.toBeDefined()
  })
})
