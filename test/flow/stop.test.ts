import { describe, expect, it } from 'vitest'
import { createWorker, defineTask } from '../../src/index.ts'
import { settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { counter, eventually, gate } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const task = defineTask({ name: 'stop' })

describe('a worker that stops', () => {
  it('[W16] lets running jobs end, settles them, leaves the rest ready, and deregisters', async () => {
    const producer = deployment.producer()
    const inside = counter()
    const mayEnd = gate()
    const worker = await deployment.worker({
      maxConcurrentTasks: 5,
      handlers: [
        task.handle(async () => {
          inside.add()
          await mayEnd.opened
          return 'ended'
        }),
      ],
    })
    const refs = await producer.enqueueMany(
      task,
      Array.from({ length: 20 }, (_, n) => n),
    )
    await inside.reached(5)
    const stopped = worker.stop()
    mayEnd.open()
    await stopped
    const states = (await Promise.all(refs.map(ref => producer.get(ref)))).map(job => job?.state)
    expect(states.filter(state => state === 'succeeded')).toHaveLength(5)
    expect(states.filter(state => state === 'ready')).toHaveLength(15)
    expect(await database.rows('select from longshore.jobs where attempts <> 0')).toEqual([])
    expect(await database.rows('select from longshore.workers')).toEqual([])
    expect(inside.count).toBe(5)
  })

  it('[W16] fires the signals at the deadline, and gives back what stops without using an attempt', async () => {
    const producer = deployment.producer()
    const inside = counter()
    const reasons: unknown[] = []
    const worker = await deployment.worker({
      handlers: [
        task.handle(
          (_, { signal }) =>
            new Promise((_, reject) => {
              inside.add()
              signal.addEventListener('abort', () => {
                reasons.push((signal.reason as { code: string }).code)
                reject(signal.reason)
              })
            }),
        ),
      ],
    })
    const ref = await producer.enqueue(task, 1)
    await inside.reached(1)
    await worker.stop({ deadline: 0 })
    expect(reasons).toEqual(['WORKER_STOPPED'])
    expect(await producer.get(ref)).toMatchObject({ state: 'ready', attempts: 0 })
  })

  it('[W16] gives back what it has claimed of a lane that it does not know yet', async () => {
    // What the worker itself reads of lanes waits for the gate; claims read them as the owner.
    const held = await database.connect()
    await held.query('select pg_advisory_lock(73)')
    await database.rows(`
      create function public.after_the_gate() returns boolean language plpgsql volatile as $$
      begin perform pg_advisory_xact_lock_shared(73); return true; end $$;
      create policy after_the_gate on longshore.lanes using (public.after_the_gate())`)
    try {
      const worker = await deployment.worker({ handlers: [task.handle(() => undefined)], tags: ['blue'] })
      await database.rows('alter table longshore.lanes enable row level security')
      await database.rows("select longshore.enqueue('stop', '1', '{\"tag\": \"blue\"}')")
      const isRunning = async () =>
        (await database.rows("select from longshore.jobs where state = 'running'")).length === 1
      await eventually('it is claimed', isRunning)
      const stopped = worker.stop()
      // Time for a stop that does not wait to end: that nothing happens is no event.
      await new Promise(resolve => setTimeout(resolve, 300))
      await held.query('select pg_advisory_unlock(73)')
      await stopped
      expect(await database.rows('select state, attempts from longshore.jobs')).toEqual([
        { state: 'ready', attempts: 0 },
      ])
      expect(await database.rows('select from longshore.workers')).toEqual([])
    } finally {
      await held.query('select pg_advisory_unlock_all()')
      await database.rows(`
        drop policy after_the_gate on longshore.lanes; drop function public.after_the_gate;
        alter table longshore.lanes disable row level security`)
    }
  })

  it('[W16] gives back what does not even stop', async () => {
    const producer = deployment.producer()
    const inside = counter()
    const worker = await deployment.worker({
      abortGrace: 10,
      handlers: [
        task.handle(() => {
          inside.add()
          return new Promise(() => undefined)
        }),
      ],
    })
    const ref = await producer.enqueue(task, 1)
    await inside.reached(1)
    await worker.stop({ deadline: 0 })
    expect(await producer.get(ref)).toMatchObject({ state: 'ready', attempts: 0 })
  })

  it('[S7] leaves its row behind while a job runs under it that somebody holds, so that the job is rescued', async () => {
    const producer = deployment.producer()
    const inside = counter()
    const mayEnd = gate()
    const handler = task.handle(async () => {
      inside.add()
      await mayEnd.opened
    })
    const worker = await deployment.worker({ lease: 1500, handlers: [handler] })
    const ref = await producer.enqueue(task, 1)
    await inside.reached(1)
    const tx = await database.connect()
    await tx.query('begin')
    await tx.query('select from longshore.jobs for key share')
    mayEnd.open()
    await worker.stop()
    expect(await producer.get(ref)).toMatchObject({ state: 'running' })
    expect(await database.rows('select from longshore.workers')).toHaveLength(1)
    await tx.query('rollback')
    await deployment.worker({ handlers: [handler] })
    expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded', attempts: 1 })
    await eventually(
      'its row is gone',
      async () => (await database.rows('select from longshore.workers')).length === 1,
    )
  })

  it('[S7] leaves its row behind while a claim is under way whose reply nobody hears', async () => {
    await deployment.producer().enqueue(task, 1)
    const worker = await workByHand(database, [task.name])
    const leave = async () =>
      (await database.rows('select longshore.unregister_worker($1) as gone', [worker.id]))[0]?.['gone']
    const tx = await database.connect()
    await tx.query('begin')
    const [claimed] = await worker.claim(1, tx)
    expect(await leave()).toBe(false)
    await tx.query('commit')
    expect(await leave()).toBe(false)
    if (claimed) await worker.settle([settling(claimed)])
    expect(await leave()).toBe(true)
  })

  it('may be stopped before, during and after its start, and more than once', async () => {
    const make = () =>
      createWorker({ postgres: database.urlOf('worker'), handlers: [task.handle(() => undefined)] })
    await make().stop()
    const hasty = make()
    const starting = hasty.start()
    await Promise.all([hasty.stop(), hasty.stop()])
    await starting
    const calm = make()
    await Promise.all([calm.start(), calm.start()])
    expect(await database.rows('select from longshore.workers')).toHaveLength(1)
    await calm.stop()
    await calm.stop()
    const again = await calm.start()
    expect(await database.rows('select id from longshore.workers')).toEqual([{ id: again.id }])
    await calm.stop()
    expect(await database.rows('select from longshore.workers')).toEqual([])
  })
})
