/** What a worker relies on, wherever its jobs come from: this file runs on both ways, see BOTH_PATHS in vitest.config.ts. */
import { afterEach, describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { constraintTags } from '../../src/job/constraints.ts'
import { completeJob } from '../../src/postgres/complete-job.ts'
import { setProperties } from '../../src/postgres/register-worker.ts'
import type { ClaimedJob, Lease, Outcome } from '../../src/postgres/settle-and-claim.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { openSource, type SourceInTest } from '../support/job-source.ts'
import { eventually } from '../support/signals.ts'
import { weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const task = defineTask<number>({ name: 'task' })
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

const opened: SourceInTest[] = []
const sourceOf = async (given: Partial<Parameters<typeof openSource>[2]> = {}) => {
  const source = await openSource(database, deployment, { tasks: ['task'], ...given })
  opened.push(source)
  return source
}
afterEach(async () => {
  await Promise.all(opened.splice(0).map(source => source.close()))
})

const succeeded = ({ id, leaseToken }: Lease): Outcome => ({
  id,
  leaseToken,
  kind: 'succeeded',
  result: null,
})
const released = ({ id, leaseToken }: Lease): Outcome => ({ id, leaseToken, kind: 'released' })
const payloads = (jobs: readonly ClaimedJob[]) => jobs.map(({ payload }) => Number(payload))
const states = async () =>
  Object.fromEntries(
    (
      await database.rows<{ state: string; count: number }>(
        `select state::text, count(*)::int from (
           select state from longshore.jobs union all select state from longshore.finished_jobs) j group by 1`,
      )
    ).map(({ state, count }) => [state, count]),
  )

describe('a job source', () => {
  it('[C7] hands over the best jobs first, and no more than were asked for', async () => {
    const producer = deployment.producer({ tasks: [task] })
    await producer.enqueueMany(task, [0, 1, 2])
    await producer.enqueueMany(task, [3, 4], { priority: 5 })
    const { claim, settle } = await sourceOf()
    const first = await claim(3)
    expect(payloads(first)).toEqual([3, 4, 0])
    const then = await claim(2)
    expect(payloads(then)).toEqual([1, 2])
    await settle(...[...first, ...then].map(succeeded))
    expect(await states()).toEqual({ succeeded: 5 })
  })

  it('[S14] settles what has ended in the exchange that claims what comes next', async () => {
    await deployment.producer({ tasks: [task] }).enqueueMany(task, [0, 1])
    const { source, claim, settle } = await sourceOf()
    const [job] = await claim(1)
    const next: ClaimedJob[] = []
    let outcomes = [succeeded(job as ClaimedJob)]
    await eventually('the next is handed over', async () => {
      const answer = await source.exchange(outcomes, 1)
      expect([...answer.busy, ...answer.lost]).toEqual([])
      outcomes = []
      next.push(...answer.claimed)
      return next.length > 0
    })
    expect(await states()).toEqual({ succeeded: 1, running: 1 })
    await settle(...next.map(succeeded))
  })

  it('[X4] says which leases were gone, and takes an outcome twice', async () => {
    const producer = deployment.producer({ tasks: [task] })
    await producer.enqueueMany(task, [0, 1])
    const { claim, settle } = await sourceOf()
    const [job, other] = (await claim(2)) as [ClaimedJob, ClaimedJob]
    await settle(succeeded(job))
    const twice = await settle(succeeded(job), succeeded(other))
    expect([...twice.lost]).toEqual([])
    const stale = await settle({ ...succeeded(other), leaseToken: '1' })
    expect([...stale.lost]).toEqual([other.id])
    expect(await states()).toEqual({ succeeded: 2 })
  })

  it('says which rows another transaction has locked, and settles the others', async () => {
    await deployment.producer({ tasks: [task] }).enqueueMany(task, [0, 1])
    const { claim, settle } = await sourceOf()
    const [job, other] = (await claim(2)) as [ClaimedJob, ClaimedJob]
    const tx = await database.connect()
    await tx.query('begin')
    await tx.query('select from longshore.jobs where id = $1 for update', [job.id])
    expect([...(await settle(succeeded(job), succeeded(other))).busy]).toEqual([job.id])
    expect(await states()).toEqual({ succeeded: 1, running: 1 })
    await tx.query('commit')
    expect([...(await settle(succeeded(job))).busy]).toEqual([])
    expect(await states()).toEqual({ succeeded: 2 })
  })

  it('[S10] sends a call at once again that Postgres undid because of locks, and gives up where that does not help', async () => {
    await deployment.producer({ tasks: [task] }).enqueueMany(task, [0, 1])
    const { source, claim, settle } = await sourceOf()
    const [job] = (await claim(1)) as [ClaimedJob]
    await database.rows('create sequence undone')
    const undo = (times: number, code: string) => ({
      name: 'settle_and_claim',
      point: 'done',
      insertion: `if nextval('public.undone') <= ${times} then raise 'undone' using errcode = '${code}'; end if;`,
    })
    for (const code of ['40P01', '55P03']) {
      await weakened(database, [undo(1000, code)], () =>
        expect(source.exchange([succeeded(job)], 0)).rejects.toMatchObject({ code }),
      )
      expect(
        await database.rows("select setval('undone', 1, false), last_value::int as calls from undone"),
      ).toMatchObject([{ calls: 3 }])
    }
    expect(await states()).toEqual({ running: 1, ready: 1 })
    const next = await weakened(database, [undo(2, '55P03')], () => source.exchange([succeeded(job)], 1))
    expect([...next.lost, ...next.busy]).toEqual([])
    expect(await states()).toMatchObject({ succeeded: 1 })
    const rest = next.claimed.length > 0 ? next.claimed : await claim(1)
    expect(payloads(rest)).toEqual([1])
    await settle(...rest.map(succeeded))
  })

  it('[W7] offers a job again that was given back, without an attempt used', async () => {
    await deployment.producer({ tasks: [task] }).enqueue(task, 0)
    const { claim, settle } = await sourceOf()
    const [job] = (await claim(1)) as [ClaimedJob]
    await settle(released(job))
    const [again] = (await claim(1)) as [ClaimedJob]
    expect(again).toMatchObject({ id: job.id, attempt: 1 })
    expect(again.leaseToken).not.toBe(job.leaseToken)
    await settle(succeeded(again))
  })

  it('[C8] hands each job over to one worker', async () => {
    const sources = await Promise.all([sourceOf(), sourceOf(), sourceOf()])
    await deployment.producer({ tasks: [task] }).enqueueMany(task, numbers(60))
    const claimed: ClaimedJob[][] = sources.map(() => [])
    await eventually('all are handed over', async () => {
      const answers = await Promise.all(sources.map(({ source }) => source.exchange([], 7)))
      for (const [n, answer] of answers.entries()) claimed[n]?.push(...answer.claimed)
      return claimed.flat().length >= 60
    })
    expect(payloads(claimed.flat()).sort((a, b) => a - b)).toEqual(numbers(60))
    await Promise.all(sources.map(({ settle }, n) => settle(...(claimed[n] ?? []).map(succeeded))))
  })

  it('[C6] hands over nothing that the worker does not serve', async () => {
    const other = defineTask<number>({ name: 'other' })
    const producer = deployment.producer({ tasks: [task, other] })
    await producer.enqueue(other, 1)
    await producer.enqueue(task, 2, { constraints: { gpu: 'a100' } })
    await producer.enqueue(task, 3)
    const { claim, source, settle } = await sourceOf()
    const [job] = (await claim(1)) as [ClaimedJob]
    expect(payloads([job])).toEqual([3])
    expect((await source.exchange([succeeded(job)], 10)).claimed).toEqual([])
    expect(await states()).toEqual({ succeeded: 1, ready: 2 })
    await settle()
  })

  it('[W5] wakes an idle worker when a job is enqueued, and again for the next', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const { idleUntilJob, settle } = await sourceOf()
    for (const n of numbers(3)) {
      const waking = idleUntilJob()
      await producer.enqueue(task, n)
      const job = await waking
      expect(payloads([job])).toEqual([n])
      await settle(succeeded(job))
    }
  })

  it('[W5] wakes an idle worker when a job has become due', async () => {
    const { idleUntilJob, settle } = await sourceOf()
    const waking = idleUntilJob()
    // Its upkeep makes it ready.
    await deployment.worker({ handlers: [defineTask({ name: 'unrelated' }).handle(() => undefined)] })
    await deployment.producer({ tasks: [task] }).enqueue(task, 1, { delay: 50 })
    await settle(succeeded(await waking))
  })

  it('[L7] wakes an idle worker when a slot is free again', async () => {
    const limited = defineTask<number>({ name: 'limited', concurrency: 1 })
    const [one, two] = await Promise.all([sourceOf({ tasks: ['limited'] }), sourceOf({ tasks: ['limited'] })])
    await deployment.producer({ tasks: [limited] }).enqueueMany(limited, [0, 1, 2])
    const [job] = (await one.claim(1)) as [ClaimedJob]
    const waking = two.idleUntilJob()
    await one.settle(succeeded(job))
    one.source.onFull()
    const next = await waking
    expect(payloads([next])).toEqual([1])
    // In a transaction of its own, outside of an exchange.
    const third = one.idleUntilJob()
    await completeJob(two.pool, 'longshore', two.worker, next, async () => null)
    two.source.onCompleted(next)
    two.source.onFull()
    await one.settle(succeeded(await third))
  })

  it('[W16] wakes another worker while one rests, and wakes it again when it goes on', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const [one, two] = await Promise.all([sourceOf(), sourceOf()])
    void one.idleUntilJob()
    await one.source.rest(true)
    const before = one.looks.count
    for (const n of numbers(3)) {
      const waking = two.idleUntilJob()
      await producer.enqueue(task, n)
      await two.settle(succeeded(await waking))
    }
    expect(one.looks.count).toBe(before)
    await two.source.rest(true)
    await one.source.rest(false)
    const waking = one.idleUntilJob()
    await producer.enqueue(task, 3)
    await one.settle(succeeded(await waking))
  })

  it('[C11] goes by the properties that Postgres was told last', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const { source, pool, worker, facts, claim, settle } = await sourceOf()
    await producer.enqueue(task, 1, { constraints: { gpu: 'a100' } })
    const had = { properties: { gpu: 'a100' }, constraintTags: constraintTags({ gpu: 'a100' }) }
    await setProperties(pool, 'longshore', worker, had)
    Object.assign(facts, had)
    await source.onPropertiesChanged()
    await settle(...(await claim(1)).map(succeeded))
    expect(await states()).toEqual({ succeeded: 1 })
  })

  it('[D8] hands nothing to a worker that is taken for dead, and says so', async () => {
    deployment.skipAudit('the death is written by hand')
    const { source, worker } = await sourceOf()
    await deployment.producer({ tasks: [task] }).enqueue(task, 1)
    await database.rows('update longshore.workers set dead_at = now() where id = $1', [worker.id])
    await eventually('it is told', async () => {
      const { claimed, wait } = await source.exchange([], 5)
      expect(claimed).toEqual([])
      return wait === 'dead'
    })
  })

  it('[W16] settles what has ended after it was closed, and leaves the jobs to others', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const [one, two] = await Promise.all([sourceOf(), sourceOf()])
    await producer.enqueue(task, 0)
    const [job] = (await one.claim(1)) as [ClaimedJob]
    await one.source.close()
    await one.settle(succeeded(job))
    const waking = two.idleUntilJob()
    await producer.enqueue(task, 1)
    await two.settle(succeeded(await waking))
    expect(await states()).toEqual({ succeeded: 2 })
  })
})
