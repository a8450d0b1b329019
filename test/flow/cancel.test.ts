import { describe, expect, it } from 'vitest'
import { defineTask, LongshoreError, newJobId } from '../../src/index.ts'
import { settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { waitsForLock } from '../support/locks.ts'
import { counter, gate } from '../support/signals.ts'
import { weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const task = defineTask({ name: 'task', concurrency: 5 })

const usedSlots = async () =>
  (
    await database.rows<{ used: number }>(
      'select coalesce(sum(used), 0)::int as used from longshore.slot_groups',
    )
  )[0]?.used

describe('cancel', () => {
  it('[S13] a ready and a delayed job never start; whoever waits is told; twice is the same', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const ready = await producer.enqueue(task, 1)
    const delayed = await producer.enqueue(task, 2, { delay: '1h' })
    const waiting = producer.waitFor(ready)
    for (const ref of [ready, delayed, ready, delayed]) expect(await producer.cancel(ref)).toBe('cancelled')
    expect(await waiting).toMatchObject({ state: 'cancelled', attempts: 0, startedAt: null })
    expect(await producer.get(delayed)).toMatchObject({ state: 'cancelled' })
    const worker = await workByHand(database, ['task'])
    expect(await worker.claim(5)).toEqual([])
  })

  it('[S13] answers for a job that has finished, and for one that never was', async () => {
    const producer = deployment.producer({ tasks: [task] })
    await deployment.worker({ handlers: [task.handle(() => undefined)] })
    const ref = await producer.enqueue(task, 1)
    await producer.waitFor(ref)
    expect(await producer.cancel(ref)).toBe('finished')
    expect(await producer.get(ref)).toMatchObject({ state: 'succeeded' })
    expect(await producer.cancel(newJobId())).toBe('unknown')
    await expect(producer.cancel('no id')).rejects.toThrow('a job id is a UUID')
  })

  it('[S13] a running job gets its signal, and ends as cancelled with its slot freed', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const begun = gate()
    const told = gate<unknown>()
    await deployment.worker({
      handlers: [
        task.handle(async (_, ctx) => {
          begun.open()
          await new Promise(resolve => ctx.signal.addEventListener('abort', resolve))
          told.open(ctx.signal.reason)
          throw new Error('stopped')
        }),
      ],
    })
    const ref = await producer.enqueue(task, 1)
    await begun.opened
    expect(await producer.cancel(ref)).toBe('cancelling')
    expect(['cancelling', 'cancelled']).toContain(await producer.cancel(ref)) // it may have ended meanwhile
    const reason = await told.opened
    expect(reason).toBeInstanceOf(LongshoreError)
    expect(reason).toMatchObject({ code: 'JOB_CANCELLED' })
    expect(await producer.waitFor(ref)).toMatchObject({ state: 'cancelled', attempts: 1 })
    expect(await usedSlots()).toBe(0)
  })

  it('[S13] a handler that ignores its signal, or succeeds all the same, ends as cancelled', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const begun = counter()
    const mayEnd = gate()
    const stubborn = gate()
    await deployment.worker({
      handlers: [
        task.handle(async job => {
          begun.add()
          await (job.payload === 'stubborn' ? stubborn.opened : mayEnd.opened)
          return 'done all the same'
        }),
      ],
    })
    const [stubbornRef, lateRef] = await producer.enqueueMany(task, ['stubborn', 'late'])
    if (!stubbornRef || !lateRef) throw new Error('not enqueued')
    await begun.reached(2)
    expect(await producer.cancel(lateRef)).toBe('cancelling')
    mayEnd.open()
    expect(await producer.waitFor(lateRef)).toMatchObject({ state: 'cancelled' })
    expect(await producer.cancel(stubbornRef)).toBe('cancelling')
    expect(await producer.waitFor(stubbornRef)).toMatchObject({ state: 'cancelled' })
    stubborn.open()
  })

  it('[S13] reaches a worker whose bell was lost with its next beat', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const begun = gate()
    const told = gate()
    await deployment.worker({
      lease: 1500,
      handlers: [
        task.handle(async (_, ctx) => {
          begun.open()
          await new Promise(resolve => ctx.signal.addEventListener('abort', resolve))
          told.open()
        }),
      ],
    })
    const ref = await producer.enqueue(task, 1)
    await begun.opened
    // As cancel does, without the bell.
    await database.rows('update longshore.jobs set is_cancelled = true where id = $1', [ref.id])
    await told.opened
    expect(await producer.waitFor(ref)).toMatchObject({ state: 'cancelled' })
  })

  it('[X1] [S13] is part of the transaction that it is asked in', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const ref = await producer.enqueue(task, 1)
    const tx = await database.connect()
    await tx.query('begin')
    expect(await producer.cancel(ref, { tx })).toBe('cancelled')
    await tx.query('rollback')
    expect(await producer.get(ref)).toMatchObject({ state: 'ready' })
  })

  it.each(['failed', 'retry', 'released'])(
    '[S13] a cancelled run that ends as %s is cancelled',
    async outcome => {
      const producer = deployment.producer({ tasks: [task] })
      const ref = await producer.enqueue(task, 1)
      const worker = await workByHand(database, ['task'])
      const [job] = await worker.claim(1)
      await producer.cancel(ref)
      await worker.settleOthers([{ id: job?.id, token: job?.lease_token, outcome, delayMs: 5 }])
      expect(await producer.get(ref)).toMatchObject({ state: 'cancelled' })
      expect(await usedSlots()).toBe(0)
    },
  )
})

describe('a cancel and a completion at once', () => {
  const begin = async () => {
    const producer = deployment.producer({ tasks: [task] })
    const ref = await producer.enqueue(task, 1)
    const worker = await workByHand(database, ['task'])
    const [job] = await worker.claim(1)
    if (!job) throw new Error('not claimed')
    return {
      producer,
      ref,
      worker,
      job,
      cancelling: await database.connect(),
      settles: await database.connect(),
    }
  }

  it('[S13] the completion first: the job has succeeded', async () => {
    const { producer, ref, worker, job, cancelling, settles } = await begin()
    await settles.query('begin')
    await worker.settle([settling(job)], settles)
    const cancelled = cancelling.query('select answer from longshore.cancel(array[$1::uuid])', [ref.id])
    await waitsForLock(database, cancelling)
    await settles.query('commit')
    expect((await cancelled).rows).toEqual([{ answer: 'finished' }])
    expect(await producer.get(ref)).toMatchObject({ state: 'succeeded' })
    expect(await usedSlots()).toBe(0)
  })

  const cancelFirst = async () => {
    const { producer, ref, worker, job, cancelling } = await begin()
    await cancelling.query('begin')
    await producer.cancel(ref, { tx: cancelling })
    // It is held for longer than the settle waits.
    expect(await worker.settle([settling(job)])).toEqual([{ id: job.id, answer: 'busy' }])
    await cancelling.query('commit')
    expect(await worker.settle([settling(job)])).toEqual([])
    return (await producer.get(ref))?.state
  }

  it('[S13] the cancel first: the job is cancelled', async () => {
    deployment.skipAudit('a guard is taken away')
    expect(await cancelFirst()).toBe('cancelled')
    const guards = [
      { name: 'move_to_history', guard: 'not-cancelled' },
      { name: 'move_to_history', guard: 'cancelled-ends', replacement: 'false' },
    ]
    expect(await weakened(database, guards, cancelFirst)).toBe('succeeded')
  })
})

describe('a cancel and a claim at once', () => {
  it('[S13] the claim first: the job runs and is being cancelled', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const ref = await producer.enqueue(task, 1)
    const worker = await workByHand(database, ['task'])
    const [claiming, cancelling] = [await database.connect(), await database.connect()]
    await claiming.query('begin')
    expect(await worker.claim(1, claiming)).toHaveLength(1)
    const cancelled = cancelling.query('select answer from longshore.cancel(array[$1::uuid])', [ref.id])
    await waitsForLock(database, cancelling)
    await claiming.query('commit')
    expect((await cancelled).rows).toEqual([{ answer: 'cancelling' }])
  })

  it('[S13] the cancel first: the job never starts', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const ref = await producer.enqueue(task, 1)
    const worker = await workByHand(database, ['task'])
    const cancelling = await database.connect()
    await cancelling.query('begin')
    await producer.cancel(ref, { tx: cancelling })
    expect(await worker.claim(1)).toEqual([])
    await cancelling.query('commit')
    expect(await worker.claim(1)).toEqual([])
    expect(await usedSlots()).toBe(0)
  })
})
