import { afterEach, describe, expect, it } from 'vitest'
import { defineTask, type JobRef } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { type StoreProxy, startProxy } from '../support/proxy.ts'
import { counter } from '../support/signals.ts'

const database = useDatabase()
let proxy: StoreProxy | undefined
afterEach(async () => {
  await proxy?.close()
})
const deployment = useDeployment(database)
const task = defineTask({ name: 'lossy' })
const limited = defineTask<string, string, string, unknown>({ name: 'lossy and limited', concurrency: 1 })

describe('a lost reply', () => {
  it('[S10] to the commit of an enqueue: the retry does not run the job again, though it has run meanwhile', async () => {
    const theProxy = await startProxy(database.url)
    proxy = theProxy
    const producer = deployment.producer({ postgres: theProxy.url })
    const refs: JobRef[] = [await producer.enqueue(task, 'warm up')]
    const ran: unknown[] = []
    const done = counter()
    await deployment.worker({
      handlers: [
        task.handle(job => {
          ran.push(job.payload)
          done.add()
        }),
      ],
    })
    /** The retry is on its way only when all of it has run. */
    const losing = async <T>(enqueue: () => Promise<T>, runs: number): Promise<T> => {
      const lost = theProxy.loseReplyTo('enqueue_plain')
      const enqueued = enqueue()
      await lost
      theProxy.holdAll()
      await done.reached(runs)
      await deployment.drained()
      theProxy.letFlow()
      return enqueued
    }
    await done.reached(1)
    const single = await losing(() => producer.enqueue(task, 'single'), 2)
    expect(single).toMatchObject({ isNew: true })
    refs.push(single, ...(await losing(() => producer.enqueueMany(task, ['many 1', 'many 2']), 4)))
    await deployment.atRest({ enqueued: refs })
    expect([...ran].sort()).toEqual(['many 1', 'many 2', 'single', 'warm up'])
  })

  it.each(['settle_and_claim', 'commit'])(
    '[S10] [X4] to the commit of a settle (%s): the retry finds it settled, and there is no second effect',
    async call => {
      await database.rows('create table effects (job_id uuid not null)')
      const theProxy = await startProxy(database.url)
      proxy = theProxy
      const producer = deployment.producer({ tasks: [limited] })
      const ran = counter()
      let lost: Promise<void> | undefined
      await deployment.worker({
        postgres: theProxy.url,
        maxConcurrentTasks: 1,
        handlers: [
          limited.handle(async ({ id, payload }, ctx) => {
            ran.add()
            // The next call of this worker settles this very run.
            if (call !== 'commit' && payload === 'lose') lost = theProxy.loseReplyTo(call)
            if (call !== 'commit' || payload !== 'lose') return payload
            await ctx.complete(async tx => {
              await tx.query('insert into effects (job_id) values ($1)', [id])
              lost = theProxy.loseReplyTo(call, 'insert into effects')
              return payload
            })
          }),
        ],
      })
      const refs = [await producer.enqueue(limited, 'lose'), await producer.enqueue(limited, 'next')]
      const ended = await Promise.all(refs.map(ref => producer.waitFor(ref)))
      await lost
      expect(ended).toMatchObject([
        { state: 'succeeded', result: 'lose', attempts: 1 },
        { state: 'succeeded', result: 'next', attempts: 1 },
      ])
      await deployment.atRest({ enqueued: refs })
      expect(ran.count).toBe(2)
      expect(await database.rows('select from effects')).toHaveLength(call === 'commit' ? 1 : 0)
      await database.rows('drop table effects')
    },
  )

  it('[S10] to a claim: the worker finds the runs it knows nothing of and gives them back, no attempt used', async () => {
    proxy = await startProxy(database.url)
    const producer = deployment.producer()
    const done = counter()
    await deployment.worker({ postgres: proxy.url, handlers: [task.handle(() => done.add())] })
    await producer.enqueue(task, 0)
    await done.reached(1)
    await deployment.drained()
    const lost = proxy.loseReplyTo('settle_and_claim')
    const refs = await producer.enqueueMany(task, [1, 2, 3])
    await lost
    const ended = await Promise.all(refs.map(ref => producer.waitFor(ref)))
    expect(ended.map(job => [job.state, job.attempts])).toEqual(Array(3).fill(['succeeded', 1]))
    await deployment.atRest()
  })

  it('[S10] of a settle that never arrived: it is sent again, and the run is not lost', async () => {
    proxy = await startProxy(database.url)
    const theProxy = proxy
    const producer = deployment.producer()
    const ran = counter()
    let lost: Promise<void> | undefined
    await deployment.worker({
      postgres: proxy.url,
      handlers: [
        task.handle(() => {
          ran.add()
          lost = theProxy.loseRequest('settle_and_claim')
          return 'kept'
        }),
      ],
    })
    const ref = await producer.enqueue(task, 1)
    expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded', result: 'kept', attempts: 1 })
    await lost
    await deployment.atRest({ enqueued: [ref] })
    expect(ran.count).toBe(1)
  })

  it('[W16] to a claim just before a stop: the jobs are given back before the worker leaves', async () => {
    proxy = await startProxy(database.url)
    const producer = deployment.producer()
    const done = counter()
    const worker = await deployment.worker({ postgres: proxy.url, handlers: [task.handle(() => done.add())] })
    await producer.enqueue(task, 0)
    await done.reached(1)
    await deployment.drained()
    const lost = proxy.loseReplyTo('settle_and_claim')
    await producer.enqueueMany(task, [1, 2, 3])
    await lost
    await worker.stop()
    const rows = await database.rows('select distinct state, attempts from longshore.jobs')
    if (rows.length > 0) expect(rows).toEqual([{ state: 'ready', attempts: 0 }])
    expect(done.count + (await database.rows('select from longshore.jobs')).length).toBe(4)
    await deployment.worker({ handlers: [task.handle(() => done.add())] })
    await deployment.atRest()
    expect(done.count).toBe(4)
  })

  it('[S10] in the middle of a large enqueueMany: all of it is there once, and the process lives', async () => {
    const producer = deployment.producer()
    await producer.enqueue(task, 'warm up')
    const payloads = Array.from({ length: 30_000 }, (_, n) => n)
    let isDone = false
    const many = producer.enqueueMany(task, payloads).finally(() => {
      isDone = true
    })
    for (let kills = 0; kills < 3 && !isDone; ) {
      const killed = await database.rows<{ done: boolean }>(
        `select pg_terminate_backend(pid) as done from pg_stat_activity
         where datname = current_database() and application_name = 'longshore' and state <> 'idle'`,
      )
      kills += killed.length
    }
    expect(await many).toHaveLength(30_000)
    const [row] = await database.rows<{ n: number }>('select count(*)::int as n from longshore.jobs')
    expect(row?.n).toBe(30_001)
  })
})
