import { setTimeout as pause } from 'node:timers/promises'
import { pino } from 'pino'
import { describe, expect, it } from 'vitest'
import { type Duration, defineTask, type JobRef } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { counter, eventually, gate } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const task = defineTask<string>({ name: 'task' })

/** A worker that runs one long job while a job that was rescued twice waits; and what runs beside what. */
async function waitingToRunAlone() {
  deployment.skipAudit('the rescues are written by hand')
  const producer = deployment.producer({ tasks: [task] })
  const [begun, mayEnd, again, allAgain] = [counter(), gate(), counter(), gate()]
  const inside = new Set<string>()
  const beside: string[][] = []
  const worker = await deployment.worker({
    maxConcurrentTasks: 3,
    handlers: [
      task.handle(async ({ payload }) => {
        inside.add(payload)
        beside.push([...inside].sort())
        begun.add()
        if (payload === 'long') await mayEnd.opened
        if (payload.startsWith('again')) {
          again.add()
          await allAgain.opened
        }
        inside.delete(payload)
      }),
    ],
  })
  await producer.enqueue(task, 'long')
  await begun.reached(1)
  const lonely = await producer.enqueue(task, 'lonely', { delay: '1h' })
  await database.rows('update longshore.jobs set rescues = 2 where id = $1', [lonely.id])
  await producer.change(lonely, { delay: 0 })
  await eventually('it is claimed', async () => (await producer.get(lonely))?.state === 'running')
  /** As many as it may run at once do run at once. */
  const runsFully = async () => {
    await producer.enqueueMany(task, ['again 1', 'again 2', 'again 3'])
    await again.reached(3)
    allAgain.open()
  }
  return { producer, worker, lonely: lonely as JobRef, mayEnd, beside, runsFully }
}

describe('a job that was rescued twice', () => {
  it('[S7] waits for the others, runs alone, and leaves every permit free', async () => {
    const { producer, lonely, mayEnd, beside, runsFully } = await waitingToRunAlone()
    await producer.enqueue(task, 'other')
    await pause(100) // nothing is claimed meanwhile
    expect(beside).toEqual([['long']])
    mayEnd.open()
    expect(await producer.waitFor(lonely)).toMatchObject({ state: 'succeeded', attempts: 1 })
    expect(beside.filter(names => names.includes('lonely'))).toEqual([['lonely']])
    await runsFully()
  })

  it('[S13] is cancelled while it waits, and leaves every permit free', async () => {
    const { producer, lonely, mayEnd, beside, runsFully } = await waitingToRunAlone()
    expect(await producer.cancel(lonely)).toBe('cancelling')
    expect(await producer.waitFor(lonely, { timeout: '5s' })).toMatchObject({ state: 'cancelled' })
    mayEnd.open()
    await runsFully()
    expect(beside.flat()).not.toContain('lonely')
  })

  it('[W16] is given back when the worker stops while it waits', async () => {
    const { producer, worker, lonely, mayEnd } = await waitingToRunAlone()
    const from = performance.now()
    await worker.stop({ deadline: 200 })
    expect(performance.now() - from).toBeLessThan(5000)
    expect(await producer.get(lonely)).toMatchObject({ state: 'ready', attempts: 0 })
    mayEnd.open()
  })

  it('[S7] keeps no permit when the life dies while it waits', async () => {
    const { worker, lonely, producer, mayEnd, runsFully } = await waitingToRunAlone()
    const { id } = await worker.start()
    // In one transaction, so that no beat comes between.
    await database.rows(
      `update longshore.workers set expires_at = now() - interval '1 second', lease_ms = 100 where id = ${id};
       select longshore.rescue(3600000, 100)`,
    )
    mayEnd.open()
    expect(await producer.waitFor(lonely)).toMatchObject({ state: 'succeeded' })
    await runsFully()
  })
})

/** A task whose handler ignores its signal and is told to return by the test. */
const stubborn = defineTask<null>({ name: 'stubborn', timeout: 30, retry: { maxAttempts: 1 } })
const lonely = defineTask<string>({ name: 'lonely' })
const other = defineTask<number>({ name: 'other' })

/** A worker with a handler that never returns, told to stop or not, and a ready job that must run alone. */
async function besideOneThatStays(options: { aloneDeadline?: Duration; isStuck: boolean }) {
  deployment.skipAudit('the rescues are written by hand')
  const { aloneDeadline = '30s', isStuck } = options
  const lines: { level: number; msg: string; job?: string }[] = []
  const logger = pino({ level: 'info' }, { write: (line: string) => void lines.push(JSON.parse(line)) })
  const [mayReturn, begun, ran] = [gate(), counter(), { others: counter(), lonely: counter() }]
  const stays = isStuck ? stubborn : defineTask<null>({ name: 'stays' })
  const handlers = [
    stays.handle(async () => {
      begun.add()
      await mayReturn.opened
    }),
    lonely.handle(() => ran.lonely.add()),
    other.handle(() => ran.others.add()),
  ]
  const producer = deployment.producer({ tasks: [stays, lonely, other] })
  const worker = await deployment.worker({ aloneDeadline, logger, handlers, name: 'the worker' })
  const first = await producer.enqueue(stays, null)
  await begun.reached(1)
  if (isStuck) expect(await producer.waitFor(first)).toMatchObject({ error: { code: 'TIMEOUT' } })
  const job = await producer.enqueue(lonely, 'x', { delay: '1h' })
  await database.rows('update longshore.jobs set rescues = 2 where id = $1', [job.id])
  await producer.change(job, { delay: 0 })
  return {
    producer,
    worker,
    job: job as JobRef,
    mayReturn,
    ran,
    warned: () => lines.filter(({ level, job: id }) => level === 40 && id === job.id),
    isGivenBack: () =>
      eventually('it is given back', async () => lines.some(({ msg }) => msg.includes('was given back'))),
    /** It claims and runs other jobs. */
    async goesOn() {
      const before = ran.others.count
      await producer.enqueueMany(other, [1, 2, 3])
      await ran.others.reached(before + 3)
    },
  }
}

describe('a job that must run alone, beside a handler that does not return', () => {
  it('[X11] is given back at once where the handler ignored its signal, which health and explain tell; the worker goes on', async () => {
    const { producer, worker, job, ran, warned, isGivenBack, goesOn, mayReturn } = await besideOneThatStays({
      isStuck: true,
    })
    await isGivenBack()
    await goesOn()
    expect(ran.lonely.count).toBe(0)
    expect(await worker.health()).toMatchObject({
      isReady: true,
      handlers: expect.stringMatching(/^stuck: 1 of 1000 .* of task stubborn\); no job can run alone here/),
    })
    const { id } = await worker.start()
    await eventually('its row says so', async () => {
      const [row] = await database.rows<{ stuck_handlers: number }>(
        'select stuck_handlers from longshore.workers where stuck_since < now()',
      )
      return row?.stuck_handlers === 1
    })
    await eventually('it is not claimed at this moment', async () => {
      const { reasons = [] } = (await producer.explain(job)) ?? {}
      const why = reasons.find(({ kind }) => kind === 'alone')
      if (!why) return false
      expect(why).toMatchObject({ rescues: 2, workers: [{ id, name: 'the worker' }] })
      expect(why.sentence).toMatch(
        /died with it 2 times, so it must run alone, .* have not returned: \d+ \(the worker\) with 1 since .*Z; restart one of them/,
      )
      return true
    })
    const [row] = await database.rows('select attempts, rescues from longshore.jobs where id = $1', [job.id])
    expect(row?.['rescues']).toBe(2)
    expect(warned()).toHaveLength(1)
    mayReturn.open()
  })

  it('[X11] runs here once that handler has returned', async () => {
    const { producer, job, mayReturn, isGivenBack, worker } = await besideOneThatStays({ isStuck: true })
    await isGivenBack()
    mayReturn.open()
    expect(await producer.waitFor(job)).toMatchObject({ state: 'succeeded', attempts: 1 })
    expect(await worker.health()).toMatchObject({ handlers: 'none stuck' })
  })

  it('[X11] runs on another worker', async () => {
    const { producer, job, mayReturn, isGivenBack, ran } = await besideOneThatStays({ isStuck: true })
    await isGivenBack()
    const elsewhere = counter()
    await deployment.worker({ handlers: [lonely.handle(() => elsewhere.add())] })
    expect(await producer.waitFor(job)).toMatchObject({ state: 'succeeded', attempts: 1 })
    expect([elsewhere.count, ran.lonely.count]).toEqual([1, 0])
    mayReturn.open()
  })

  it('[X11] is given back after the deadline where nothing is known of the handler; the worker goes on', async () => {
    const { producer, job, isGivenBack, goesOn, mayReturn, ran, warned } = await besideOneThatStays({
      isStuck: false,
      aloneDeadline: 500,
    })
    await isGivenBack()
    await goesOn()
    expect(ran.lonely.count).toBe(0)
    expect(warned()).toHaveLength(1)
    mayReturn.open()
    expect(await producer.waitFor(job)).toMatchObject({ state: 'succeeded', attempts: 1 })
  })

  it('[X11] would keep the worker from everything else for as long as the deadline; explain tells what it waits for', async () => {
    const { producer, job, mayReturn, ran } = await besideOneThatStays({
      isStuck: false,
      aloneDeadline: '1h',
    })
    await eventually('explain tells', async () => {
      const explained = await producer.explain(job)
      return explained?.reasons.some(({ kind }) => kind === 'waits_alone') ?? false
    })
    const explained = await producer.explain(job)
    expect(explained?.summary).toMatch(
      /worker \d+ \(the worker\) has claimed it and waits to run it alone, .*: 1 other handler has not returned/,
    )
    await producer.enqueue(other, 1)
    await pause(1500)
    expect(ran.others.count).toBe(0)
    mayReturn.open()
    await ran.others.reached(1)
    expect(await producer.waitFor(job)).toMatchObject({ state: 'succeeded' })
  })

  it('[X11] does not stop the worker when it is stuck itself', async () => {
    deployment.skipAudit('the rescues are written by hand')
    const [mayReturn, ran] = [gate(), counter()]
    const producer = deployment.producer({ tasks: [stubborn, other] })
    const worker = await deployment.worker({
      handlers: [stubborn.handle(() => mayReturn.opened), other.handle(() => ran.add())],
    })
    const job = await producer.enqueue(stubborn, null, { delay: '1h' })
    await database.rows('update longshore.jobs set rescues = 2 where id = $1', [job.id])
    await producer.change(job, { delay: 0 })
    expect(await producer.waitFor(job)).toMatchObject({ state: 'failed', error: { code: 'TIMEOUT' } })
    await producer.enqueue(other, 1)
    await ran.reached(1)
    expect((await worker.health()).handlers).toMatch(/^stuck: 1 of/)
    mayReturn.open()
  })
})
