import { afterEach, describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { type CuttingProxy, startCuttingProxy } from '../support/cutting-proxy.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { counter, eventually } from '../support/signals.ts'

const database = useDatabase()
let proxy: CuttingProxy | undefined
afterEach(async () => {
  await proxy?.close()
})
const deployment = useDeployment(database)
const task = defineTask({ name: 'lossy' })

const allSettled = () =>
  eventually(
    'nothing is unfinished',
    async () => (await database.rows('select from longshore.jobs')).length === 0,
  )

describe('a lost reply', () => {
  it('[S10] to the commit of an enqueue: the retry does not run the job again, though it has run meanwhile', async () => {
    proxy = await startCuttingProxy(database.url)
    const producer = deployment.producer({ postgres: proxy.url })
    await producer.enqueue(task, 'warm up')
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
    await done.reached(1)
    const lost = proxy.loseReplyTo('enqueue_alike')
    const ref = producer.enqueue(task, 'single')
    await lost
    expect(await ref).toMatchObject({ isNew: true })
    const lostAgain = proxy.loseReplyTo('enqueue_alike')
    const refs = producer.enqueueMany(task, ['many 1', 'many 2'])
    await lostAgain
    expect(await refs).toHaveLength(2)
    await done.reached(4)
    await allSettled()
    expect([...ran].sort()).toEqual(['many 1', 'many 2', 'single', 'warm up'])
  })

  it('[S10] to a settle: the retry finds it settled, and the result is kept once', async () => {
    proxy = await startCuttingProxy(database.url)
    const producer = deployment.producer()
    const ran = counter()
    const theProxy = proxy
    let lost: Promise<void> | undefined
    await deployment.worker({
      postgres: proxy.url,
      maxConcurrentTasks: 1,
      handlers: [
        task.handle(job => {
          ran.add()
          // The next call of this worker settles this very run.
          if (job.payload === 'lose') lost = theProxy.loseReplyTo('settle_and_claim')
          return job.payload
        }),
      ],
    })
    const refs = [await producer.enqueue(task, 'lose'), await producer.enqueue(task, 'next')]
    const ended = await Promise.all(refs.map(ref => producer.waitFor(ref)))
    await lost
    expect(ended).toMatchObject([
      { state: 'succeeded', result: 'lose', attempts: 1 },
      { state: 'succeeded', result: 'next' },
    ])
    await allSettled()
    const [rows] = await database.rows<{ n: number }>(
      'select count(*)::int as n from longshore.finished_jobs',
    )
    expect(rows?.n).toBe(2)
    expect(ran.count).toBeGreaterThanOrEqual(2)
  })

  it('[S10] to a claim: the worker finds the runs it knows nothing of and gives them back, no attempt used', async () => {
    proxy = await startCuttingProxy(database.url)
    const producer = deployment.producer()
    const done = counter()
    await deployment.worker({ postgres: proxy.url, handlers: [task.handle(() => done.add())] })
    await producer.enqueue(task, 0)
    await done.reached(1)
    await allSettled()
    const lost = proxy.loseReplyTo('settle_and_claim')
    const refs = await producer.enqueueMany(task, [1, 2, 3])
    await lost
    const ended = await Promise.all(refs.map(ref => producer.waitFor(ref)))
    expect(ended.map(job => [job.state, job.attempts])).toEqual(Array(3).fill(['succeeded', 1]))
  })

  it('[S10] of a settle that never arrived: it is sent again, and the run is not lost', async () => {
    proxy = await startCuttingProxy(database.url)
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
    expect(ran.count).toBe(1)
  })

  it('[W16] to a claim just before a stop: the jobs are given back before the worker leaves', async () => {
    proxy = await startCuttingProxy(database.url)
    const producer = deployment.producer()
    const done = counter()
    const worker = await deployment.worker({ postgres: proxy.url, handlers: [task.handle(() => done.add())] })
    await producer.enqueue(task, 0)
    await done.reached(1)
    await allSettled()
    const lost = proxy.loseReplyTo('settle_and_claim')
    await producer.enqueueMany(task, [1, 2, 3])
    await lost
    await worker.stop()
    const rows = await database.rows('select distinct state, attempts from longshore.jobs')
    if (rows.length > 0) expect(rows).toEqual([{ state: 'ready', attempts: 0 }])
    expect(done.count + (await database.rows('select from longshore.jobs')).length).toBe(4)
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
