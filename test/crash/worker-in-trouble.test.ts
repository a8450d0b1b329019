import { describe, expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { standsAtBarrier } from '../support/locks.ts'
import { answer, block, noops, wait } from '../support/process-tasks.ts'
import { eventually } from '../support/signals.ts'
import { pauseAt, weakened } from '../support/weaken.ts'
import { useWorkerProcesses } from '../support/worker-process.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const startProcess = useWorkerProcesses(database, deployment)

const [mine, other] = noops
if (!mine || !other) throw new Error('there are no tasks')
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

/** A worker in this process that rescues whoever it can, and has no handler for what is watched here. */
const startLeader = () => deployment.worker({ handlers: [mine.handle(() => undefined)] })

const running = (count: number) =>
  eventually(`${count} jobs run`, async () => {
    return (await database.rows("select from longshore.jobs where state = 'running'")).length === count
  })
const finished = () =>
  database.rows('select state, attempts, rescues from longshore.finished_jobs order by id')

const nobodyClaims = async () => {
  const rows = await database.rows(
    `select from pg_stat_activity where datname = current_database() and application_name = 'longshore'
     and state <> 'idle' and query like '%settle_and_claim%'`,
  )
  return rows.length === 0
}

const BARRIER = 4714
/** The calls of whoever runs `wait` stop there. Made so before it starts: whoever takes the barrier waits for calls that have passed it. */
const pausing = {
  name: 'settle_and_claim',
  point: 'start',
  insertion: `if exists (select from longshore.workers w where w.id = p_worker and '${wait.name}' = any (w.tasks)) then
    ${pauseAt(BARRIER)}
  end if;`,
}
const paused = <T>(work: () => Promise<T>) => weakened(database, [pausing], work)

describe('a worker', () => {
  it('[W12] its event loop is blocked by a handler for three leases: the lease survives', async () => {
    await startLeader()
    const producer = deployment.producer()
    const worker = await startProcess({ lease: '2s' })
    const ref = await producer.enqueue(block, 6500)
    await worker.says('blocked.\n')
    const expiries = new Set<string>()
    let isBlocked = true
    const freed = worker.says('free.\n').then(() => {
      isBlocked = false
    })
    await eventually('it is free again', async () => {
      const rows = await database.rows<{ id: number; expires: string; lives: boolean }>(
        `select id, expires_at::text as expires, dead_at is null and expires_at > clock_timestamp() as lives
         from longshore.workers where 'block' = any (tasks)`,
      )
      expect(rows).toMatchObject([{ id: worker.id, lives: true }])
      expiries.add(String(rows[0]?.expires))
      return !isBlocked
    })
    await freed
    expect(expiries.size).toBeGreaterThan(3)
    await deployment.atRest({ enqueued: [ref] })
    expect(await finished()).toEqual([{ state: 'succeeded', attempts: 1, rescues: 0 }])
    expect(await deployment.runs()).toMatchObject([{ worker: worker.id, wentTo: 'ended' }])
  })

  it('[S7] its claim is in flight while it is rescued: the claim is refused, and it begins a second life', () =>
    paused(async () => {
      await startLeader()
      const producer = deployment.producer({ tasks: [wait] })
      const sleeper = await startProcess({ lease: '2s' })
      const held = await producer.enqueue(wait, 0)
      await running(1)
      const [blocker, holder] = [await database.connect(), await database.connect()]
      // Somebody holds its job, so that it stays among the workers, as a dead one.
      await holder.query('begin')
      await holder.query('select from longshore.jobs where id = $1 for update', [held.id])
      await blocker.query('select pg_advisory_lock($1)', [BARRIER])
      const refs = await producer.enqueueMany(other, numbers(3))
      await standsAtBarrier(database, 'settle_and_claim')
      sleeper.pause()
      await eventually('it is dead', async () => {
        const dead = 'select from longshore.workers where id = $1 and dead_at is not null'
        return (await database.rows(dead, [sleeper.id])).length === 1
      })
      await blocker.query('select pg_advisory_unlock($1)', [BARRIER])
      await eventually('the claim is over', nobodyClaims)
      // Nobody else has a handler for them.
      const untouched = { state: 'ready', attempts: 0, rescues: 0, lease_token: '0' }
      const state = 'select state, attempts, rescues, lease_token from longshore.jobs where id <> $1'
      expect(await database.rows(state, [held.id])).toEqual(Array(3).fill(untouched))
      await holder.query('commit')
      sleeper.release()
      sleeper.resume()
      await deployment.atRest({ enqueued: [held, ...refs] })
      const runs = await deployment.runs()
      expect(runs.map(run => run.worker > sleeper.id)).toEqual([false, true, true, true, true])
      expect(await finished()).toEqual([
        { state: 'succeeded', attempts: 1, rescues: 1 },
        ...Array(3).fill({ state: 'succeeded', attempts: 1, rescues: 0 }),
      ])
    }))

  it('[S10] one job of a batch has a result that cannot be stored: it fails, its neighbours complete', async () => {
    const producer = deployment.producer()
    const worker = await startProcess()
    const refs = await producer.enqueueMany(answer, ['one', 'a NUL in it', 'three', 'four'])
    await running(4)
    worker.release()
    await deployment.atRest({ enqueued: refs })
    const ended = await Promise.all(refs.map(ref => producer.get(ref)))
    expect(ended).toMatchObject([
      { state: 'succeeded', result: 'one' },
      { state: 'failed', error: { code: 'RESULT_REFUSED', message: expect.stringContaining('\\u0000') } },
      { state: 'succeeded', result: 'three' },
      { state: 'succeeded', result: 'four' },
    ])
    expect(await deployment.runs()).toHaveLength(4)
  })

  it('[S10] so it does where somebody held the batch at first', async () => {
    await database.rows(
      'alter table longshore.finished_jobs add constraint no_bad check (result is null or result <> \'"bad"\')',
    )
    const producer = deployment.producer()
    const worker = await startProcess()
    const refs = await producer.enqueueMany(answer, ['one', 'bad', 'three', 'four'])
    await running(4)
    const holder = await database.connect()
    await holder.query('begin')
    await holder.query('select from longshore.jobs where id = any ($1) for update', [
      refs.slice(0, 3).map(({ id }) => id),
    ])
    worker.release()
    await running(3)
    await holder.query('commit')
    await deployment.atRest({ enqueued: refs })
    const ended = await Promise.all(refs.map(ref => producer.get(ref)))
    expect(ended).toMatchObject([
      { state: 'succeeded', result: 'one' },
      { state: 'failed', error: { code: 'RESULT_REFUSED', message: expect.stringContaining('no_bad') } },
      { state: 'succeeded', result: 'three' },
      { state: 'succeeded', result: 'four' },
    ])
    await database.rows('alter table longshore.finished_jobs drop constraint no_bad')
  })

  it('[W16] [W7] SIGTERM, then SIGKILL: what has not started is given back, what runs is rescued, no attempt used', () =>
    paused(async () => {
      await startLeader()
      const producer = deployment.producer({ tasks: [wait] })
      const doomed = await startProcess({ lease: '2s' })
      const inside = await producer.enqueueMany(wait, numbers(2))
      await running(2)
      const blocker = await database.connect()
      await blocker.query('select pg_advisory_lock($1)', [BARRIER])
      const unstarted = await producer.enqueueMany(other, numbers(3))
      await standsAtBarrier(database, 'settle_and_claim')
      // The answer to its claim comes when it is about to stop.
      await doomed.stop()
      await blocker.query('select pg_advisory_unlock($1)', [BARRIER])
      await eventually('they were claimed and given back', async () => {
        // A second call that was on its way may have claimed them again.
        if (!(await nobodyClaims())) return false
        const runs = (await deployment.runs()).filter(run => run.task === other.name)
        return runs.length >= 3 && runs.every(run => run.wentTo === 'ready' && !run.isRescued)
      })
      await doomed.kill()
      const heir = await startProcess()
      heir.release()
      await deployment.atRest({ enqueued: [...inside, ...unstarted] })
      expect(await finished()).toEqual([
        ...Array(2).fill({ state: 'succeeded', attempts: 1, rescues: 1 }),
        ...Array(3).fill({ state: 'succeeded', attempts: 1, rescues: 0 }),
      ])
    }))
})
