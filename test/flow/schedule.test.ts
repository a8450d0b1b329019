import { afterEach, describe, expect, it, vi } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { counter, eventually } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const task = defineTask({ name: 'later' })

afterEach(async () => {
  vi.useRealTimers()
})

describe('a delayed job', () => {
  it.each([
    ['is ready at once', {}, 'ready'],
    ['with delay 0 is ready at once', { delay: 0 }, 'ready'],
    ['with a run time in the past is ready at once', { runAt: new Date(0) }, 'ready'],
    ['with a delay is scheduled', { delay: '1h' }, 'scheduled'],
    ['with a run time in the future is scheduled', { runAt: new Date(Date.now() + 3_600_000) }, 'scheduled'],
  ] as const)('[X5] %s', async (_, options, state) => {
    const producer = deployment.producer()
    const ref = await producer.enqueue(task, 1, options)
    const job = await producer.get(ref)
    expect(job?.state).toBe(state)
    if ('runAt' in options) expect(job?.runAt).toEqual(options.runAt)
  })

  it('[X5] never starts before its time, by the clock of the database, and all of them start', async () => {
    const producer = deployment.producer()
    const done = counter()
    await deployment.worker({ handlers: [task.handle(() => done.add())] })
    for (let n = 0; n < 40; n++) await producer.enqueue(task, n, { delay: n * 10 })
    await done.reached(40)
    await eventually(
      'all are settled',
      async () => (await database.rows('select from longshore.jobs')).length === 0,
    )
    const early = await database.rows(
      `select from longshore.finished_jobs
       where started_at < longshore.run_at_of(score) or longshore.run_at_of(score) < date_trunc('milliseconds', created_at)`,
    )
    expect(early).toEqual([])
  })

  it('[X5] is not disturbed by a producer and a worker whose clocks are an hour off', async () => {
    const producer = deployment.producer()
    const done = counter()
    await deployment.worker({ handlers: [task.handle(() => done.add())] })
    for (const skewMs of [-3_600_000, 3_600_000]) {
      vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + skewMs })
      const before = done.count
      await producer.enqueue(task, 1)
      await producer.enqueue(task, 1, { delay: 20 })
      await done.reached(before + 2)
      const far = await producer.enqueue(task, 1, { delay: '30m' })
      vi.useRealTimers()
      const [row] = await database.rows<{ minutes: number }>(
        `select round(extract(epoch from longshore.run_at_of(score) - created_at) / 60)::int as minutes
         from longshore.jobs where id = $1 and state = 'scheduled'`,
        [far.id],
      )
      expect(row?.minutes).toBe(30)
    }
  })

  it('is made ready by whoever holds the lease: a relay, or else a worker; the lease passes on', async () => {
    const producer = deployment.producer()
    const holder = async () =>
      (
        await database.rows<{ holder: string; epoch: string }>(
          'select holder, epoch from longshore.leader where expires_at > now()',
        )
      )[0]
    const relay = await deployment.relay()
    await eventually('the relay leads', async () => (await holder())?.holder.startsWith('relay') ?? false)
    const first = await holder()
    const done = counter()
    await deployment.worker({ handlers: [task.handle(() => done.add())] })
    await producer.enqueue(task, 1, { delay: 10 })
    await done.reached(1)
    expect((await holder())?.holder).toBe(first?.holder)

    await relay.stop()
    await eventually('the worker leads', async () => (await holder())?.holder.startsWith('worker') ?? false)
    expect(BigInt((await holder())?.epoch ?? 0)).toBeGreaterThan(BigInt(first?.epoch ?? 0))
    await producer.enqueue(task, 1, { delay: 10 })
    await done.reached(2)
  })

  it('does not hold up the others when somebody locks it', async () => {
    const producer = deployment.producer()
    const done = counter()
    const locked = await producer.enqueue(task, 'locked', { delay: 30 })
    const tx = await database.connect()
    await tx.query('begin')
    await tx.query('select from longshore.jobs where id = $1 for update', [locked.id])
    await deployment.worker({ handlers: [task.handle(() => done.add())] })
    await producer.enqueue(task, 'free', { delay: 50 })
    await done.reached(1)
    expect((await producer.get(locked))?.state).toBe('scheduled')
    await tx.query('rollback')
    await done.reached(2)
  })
})
