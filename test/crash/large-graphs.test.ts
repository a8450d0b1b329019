import { describe, expect, it } from 'vitest'
import type { JobRef } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { standsAtBarrier, waitsForLock } from '../support/locks.ts'
import { answer, noops } from '../support/process-tasks.ts'
import { eventually } from '../support/signals.ts'
import { pauseAt, weakened } from '../support/weaken.ts'
import { useWorkerProcesses } from '../support/worker-process.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const startProcess = useWorkerProcesses(database, deployment)

const WIDE = 10_000
const BARRIER = 4717
const [noop] = noops
if (!noop) throw new Error('there is no task')
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

const running = (count: number) =>
  eventually(`${count} jobs run`, async () => {
    return (await database.rows("select from longshore.jobs where state = 'running'")).length === count
  })

describe('a graph', () => {
  it('[S3] [S5] 10,000 → 1 → 10,000, while a worker is killed: each is counted down once, and runs after what it waits for', async () => {
    const producer = deployment.producer({ tasks: [noop] })
    const group = producer.group()
    const before = numbers(WIDE).map(n => group.add(noop, n))
    const middle = group.add(noop, 0, { after: before })
    const after = numbers(WIDE).map(n => group.add(noop, n, { after: middle }))
    await group.submit()
    const [doomed] = await Promise.all([startProcess({ lease: '2s' }), startProcess(), startProcess()])
    await eventually('some have ended', async () => {
      const [row] = await database.rows<{ n: number }>(
        'select count(*)::int as n from longshore.finished_jobs',
      )
      return (row?.n ?? 0) > WIDE / 4
    })
    await doomed.kill()
    await deployment.atRest({ enqueued: [...before, middle, ...after], withinMs: 90_000 })
    expect(await producer.getGroup(group)).toMatchObject({
      state: 'succeeded',
      counts: { succeeded: 2 * WIDE + 1 },
    })
    const ends = (await deployment.runs()).filter(run => run.wentTo === 'ended')
    expect(ends).toHaveLength(2 * WIDE + 1)
    const place = ends.findIndex(run => run.jobId === middle.id)
    const parents = new Set(before.map(({ id }) => id as string))
    expect(ends.every((run, at) => at < place === parents.has(run.jobId) || at === place)).toBe(true)
  }, 120_000)

  /** Two parents that end in one batch, and what runs after them. */
  const startFamily = async () => {
    const producer = deployment.producer({ tasks: [answer, noop] })
    const worker = await startProcess()
    const group = producer.group()
    const [one, two] = ['one', 'two'].map(name => group.add(answer, name))
    if (!one || !two) throw new Error('no parents')
    const child = group.add(noop, 0, { after: [one, two] })
    const grandchild = group.add(noop, 1, { after: child })
    const anyway = group.add(noop, 2, { after: [{ job: one, onFailure: 'run' }, two] })
    await group.submit()
    await running(2)
    const states = async (refs: JobRef[]) =>
      Promise.all(refs.map(async ref => (await producer.get(ref))?.state))
    return { producer, worker, group, jobs: [one, two, child, grandchild, anyway], one, states }
  }

  it('[S13] [S3] a cancel races a completion, the completion first: the job has succeeded, and all that follows runs', async () => {
    const { worker, jobs, one, group, producer, states } = await startFamily()
    const [blocker, cancelling] = [await database.connect(), await database.connect()]
    const pause = {
      name: 'settle_and_claim',
      point: 'done',
      insertion: `if cardinality(p_ids) > 0 then ${pauseAt(BARRIER)} end if;`,
    }
    await weakened(database, [pause], async () => {
      await blocker.query('select pg_advisory_lock($1)', [BARRIER])
      worker.release()
      await standsAtBarrier(database, 'settle_and_claim')
      await cancelling.query('begin')
      const cancelled = producer.cancel(one, { tx: cancelling })
      await waitsForLock(database, cancelling)
      await blocker.query('select pg_advisory_unlock($1)', [BARRIER])
      expect(await cancelled).toBe('finished')
      await cancelling.query('commit')
    })
    await deployment.atRest({ enqueued: jobs })
    expect(await states(jobs)).toEqual(Array(5).fill('succeeded'))
    expect(await producer.getGroup(group)).toMatchObject({ state: 'succeeded' })
  })

  it('[S13] [S4] a cancel races a completion, the cancel first: the job is cancelled, and what follows goes by its policy', async () => {
    const { worker, jobs, one, group, producer, states } = await startFamily()
    const cancelling = await database.connect()
    await cancelling.query('begin')
    expect(await producer.cancel(one, { tx: cancelling })).toBe('cancelling')
    worker.release()
    // The other one of the batch does not wait for it.
    await running(1)
    await cancelling.query('commit')
    await deployment.atRest({ enqueued: jobs })
    expect(await states(jobs)).toEqual([
      'cancelled',
      'succeeded',
      'dependency_failed',
      'dependency_failed',
      'succeeded',
    ])
    expect(await producer.getGroup(group)).toMatchObject({ state: 'failed' })
    expect(await deployment.runs()).toHaveLength(3)
  })
})
