import { describe, expect, it } from 'vitest'
import { type ChangeOptions, defineTask, newJobId } from '../../src/index.ts'
import { workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { waitsForLock } from '../support/locks.ts'
import { counter } from '../support/signals.ts'
import { pauseAt, weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const task = defineTask<unknown>({ name: 'task' })
const keyed = defineTask<unknown>({ name: 'keyed', concurrencyPerKey: 1 })

describe('change', () => {
  it('[D9] moves a ready job to the place of its new priority', async () => {
    const producer = deployment.producer()
    const refs = await producer.enqueueMany(task, ['a', 'b', 'c'])
    expect(await producer.change(refs[2] ?? '', { priority: 7 })).toBe('changed')
    expect(await producer.get(refs[2] ?? '')).toMatchObject({ priority: 7, state: 'ready' })
    const worker = await workByHand(database, ['task'])
    expect((await worker.claim(3)).map(job => job.payload)).toEqual(['c', 'a', 'b'])
  })

  it('[D9] puts a ready job off, and brings a delayed one forward: its worker is woken', async () => {
    const producer = deployment.producer()
    const done = counter()
    const [off, forward] = [
      await producer.enqueue(task, 'off'),
      await producer.enqueue(task, 'forward', { delay: '1h', priority: 3 }),
    ]
    expect(await producer.change(off, { delay: '1h' })).toBe('changed')
    expect(await producer.get(off)).toMatchObject({ state: 'scheduled', priority: 0 })
    await deployment.worker({ handlers: [task.handle(() => done.add())], pollInterval: 3_600_000 })
    expect(await producer.change(forward, { delay: 20 })).toBe('changed')
    expect(await producer.waitFor(forward)).toMatchObject({ state: 'succeeded', priority: 3 })
    expect(await producer.change(off, { runAt: new Date(0) })).toBe('changed')
    await done.reached(2)
  })

  it('[D9] [C6] gives a job other constraints: it goes to who has them', async () => {
    const producer = deployment.producer()
    const ref = await producer.enqueue(task, 1)
    const plain = await workByHand(database, ['task'])
    expect(await producer.change(ref, { constraints: { gpu: 'a100' } })).toBe('changed')
    expect(await producer.get(ref)).toMatchObject({ constraints: { gpu: 'a100' } })
    expect(await plain.claim(5)).toEqual([])
    expect(await producer.change(ref, { constraints: {} })).toBe('changed')
    expect(await plain.claim(5)).toHaveLength(1)
  })

  it('[D9] [L8] keeps a job with a key findable', async () => {
    const producer = deployment.producer({ tasks: [keyed] })
    await producer.enqueueMany(keyed, ['a', 'b'], { concurrencyKey: 'k', priority: 5 })
    const late = await producer.enqueue(keyed, 'late', { concurrencyKey: 'k', delay: '1h' })
    expect(await producer.change(late, { priority: 9, runAt: new Date(0) })).toBe('changed')
    const worker = await workByHand(database, ['keyed'])
    expect((await worker.claim(5)).map(job => job.payload)).toEqual(['late'])
  })

  it('[D9] comes too late for what runs or has ended, and says so', async () => {
    const producer = deployment.producer()
    const [runs, ends] = await producer.enqueueMany(task, [1, 2])
    if (!runs || !ends) throw new Error('not enqueued')
    const worker = await workByHand(database, ['task'])
    await worker.claim(1)
    expect(await producer.change(runs, { priority: 1 })).toBe('running')
    await producer.cancel(ends)
    expect(await producer.change(ends, { priority: 1 })).toBe('finished')
    expect(await producer.change(newJobId(), { priority: 1 })).toBe('unknown')
  })

  it.each([
    [{}, 'nothing to change'],
    [{ priority: 2048 }, 'priority must be a whole number'],
    [{ priority: Number.NaN }, 'priority must be a whole number'],
    [{ delay: 1, runAt: new Date() }, 'not both'],
    [{ attempts: 3 }, 'unknown option "attempts"'],
    [{ constraints: { colour: 'red' } }, 'colour'],
  ])('[D9] refuses %j', async (change, message) => {
    const producer = deployment.producer()
    const ref = await producer.enqueue(task, 1)
    await expect(producer.change(ref, change as ChangeOptions)).rejects.toThrow(message)
    expect(await producer.get(ref)).toMatchObject({ state: 'ready', priority: 0 })
  })
})

describe('a change and a claim at once', () => {
  it('[D9] the claim first: the change waits, and comes too late', async () => {
    const producer = deployment.producer()
    const ref = await producer.enqueue(task, 1)
    const worker = await workByHand(database, ['task'])
    const [claiming, changing] = [await database.connect(), await database.connect()]
    await claiming.query('begin')
    await worker.claim(1, claiming)
    const changed = changing.query('select longshore.change($1, \'{"priority": 3}\') as answer', [ref.id])
    await waitsForLock(database, changing)
    await claiming.query('commit')
    expect((await changed).rows).toEqual([{ answer: 'running' }])
  })

  /** The claim has read the heads of its lanes, and stands still while the best job is given constraints. */
  const changeFirst = async (isLimited: boolean) => {
    const tasks = [task, defineTask({ name: 'two', ...(isLimited && { concurrency: 5 }) })]
    const producer = deployment.producer({ tasks })
    const ref = await producer.enqueue(task, 1)
    // Lanes are merged where several have jobs.
    const other = await producer.enqueue(tasks[1] as typeof task, 1)
    const worker = await workByHand(database, ['task', 'two'])
    const [holder, claiming] = [await database.connect(), await database.connect()]
    await holder.query('select pg_advisory_lock(78)')
    const claimed = worker.claim(5, claiming)
    await waitsForLock(database, claiming)
    expect(await producer.change(ref, { constraints: { gpu: 'a100' } })).toBe('changed')
    await holder.query('select pg_advisory_unlock(78)')
    const got = (await claimed).map(job => job.id)
    await database.rows('delete from longshore.jobs')
    return got.filter(id => id !== other.id).length
  }

  it.each([
    ['from several lanes', false],
    ['beside a limit', true],
  ])(
    '[C6] the change first: a claim %s does not hand the job to a worker that no longer fits',
    async (_, isLimited) => {
      deployment.skipAudit('a guard is taken away, and jobs are removed by hand')
      const paused = { name: isLimited ? 'claim_lanes' : 'claim', point: 'found', insertion: pauseAt(78) }
      expect(await weakened(database, [paused], () => changeFirst(isLimited))).toBe(0)
    },
  )
})
