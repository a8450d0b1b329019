import { setTimeout as pause } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { defineTask, type JobRef } from '../../src/index.ts'
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
