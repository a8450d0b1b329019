import type { Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { newSecret } from '../../src/postgres/secret.ts'
import { settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { waitsForLock } from '../support/locks.ts'
import { eventually } from '../support/signals.ts'
import { pauseAt, weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const task = defineTask({ name: 'task', concurrency: 5, retry: { maxAttempts: 3, maxRescues: 2 } })
const large = defineTask({ name: 'large', concurrency: 1000 })

const expire = (id: number) =>
  database.rows("update longshore.workers set expires_at = now() - interval '1 second' where id = $1", [id])

interface Rescued {
  worker_id: number
  rescued: number
  ended: number
  is_gone: boolean
}
const RESCUE = 'select worker_id, rescued, ended, is_gone from longshore.rescue(3600000, 1000)'
const rescue = () => database.rows<Rescued>(RESCUE)

const stateOf = async (id: string | undefined) =>
  (
    await database.rows<{ state: string; attempts: number; rescues: number; worker_id: number | null }>(
      `select state, attempts, rescues, worker_id from longshore.jobs where id = $1
       union all select state, attempts, rescues, worker_id from longshore.finished_jobs where id = $1`,
      [id],
    )
  )[0]

const usedSlots = async () =>
  (
    await database.rows<{ used: number }>(
      'select coalesce(sum(used), 0)::int as used from longshore.slot_groups',
    )
  )[0]?.used

async function running(jobs: number) {
  const producer = deployment.producer({ tasks: [task] })
  await producer.enqueueMany(
    task,
    Array.from({ length: jobs }, (_, n) => n),
  )
  const worker = await workByHand(database, ['task'])
  const claimed = []
  for (let call = 0; call < jobs; call++) claimed.push(...(await worker.claim(jobs)))
  expect(claimed).toHaveLength(jobs)
  return { producer, worker, jobs: claimed }
}

describe('rescue', () => {
  it('[S7] takes back what a dead worker ran, as a rescue and not as an attempt, and frees its slots once', async () => {
    const { worker, jobs } = await running(3)
    expect(await usedSlots()).toBe(3)
    expect(await rescue()).toEqual([])
    await expire(worker.id)
    expect(await rescue()).toEqual([{ worker_id: worker.id, rescued: 3, ended: 0, is_gone: true }])
    expect(await usedSlots()).toBe(0)
    for (const job of jobs)
      expect(await stateOf(job.id)).toMatchObject({ state: 'ready', attempts: 0, rescues: 1 })
    expect(await rescue()).toEqual([])
    const other = await workByHand(database, ['task'])
    const again = [...(await other.claim(2)), ...(await other.claim(2))]
    expect(again.map(job => job.id)).toEqual(jobs.map(job => job.id))
    await other.settle(again.map(settling))
    expect(await usedSlots()).toBe(0)
  })

  it('[X4] refuses whatever a zombie settles, and frees nothing for it', async () => {
    const { worker, jobs } = await running(3)
    await expire(worker.id)
    await rescue()
    const other = await workByHand(database, ['task'])
    const again = [...(await other.claim(2)), ...(await other.claim(2))]
    expect(again).toHaveLength(3)
    expect(await worker.settle(jobs.map(settling))).toHaveLength(3)
    for (const outcome of ['failed', 'retry', 'released']) {
      const others = jobs.map(job => ({ id: job.id, token: job.lease_token, outcome, delayMs: 0 }))
      expect((await worker.settleOthers(others)).map(row => row.answer)).toEqual(['lost', 'lost', 'lost'])
    }
    expect(await usedSlots()).toBe(3)
    for (const job of jobs)
      expect(await stateOf(job.id)).toMatchObject({ state: 'running', worker_id: other.id })
  })

  it('[S7] makes a job that outlived too many workers fail as poison', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const ref = await producer.enqueue(task, 1)
    for (let death = 1; death <= 3; death++) {
      const worker = await workByHand(database, ['task'])
      expect(await worker.claim(1)).toHaveLength(1)
      await expire(worker.id)
      expect(await rescue()).toMatchObject([death <= 2 ? { rescued: 1, ended: 0 } : { rescued: 0, ended: 1 }])
    }
    expect(await producer.get(ref)).toMatchObject({
      state: 'failed',
      attempts: 0,
      error: { code: 'POISONED' },
    })
    expect(await usedSlots()).toBe(0)
  })

  it('[S7] names the jobs that were rescued twice, so that they run alone', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const ref = await producer.enqueue(task, 1)
    const alone = async (id: number) =>
      (
        await database.rows<{ alone: string | null }>(
          "select alone from longshore.settle_and_claim($1, '{}', '{}', null, null, 5)",
          [id],
        )
      )[0]?.alone
    for (const expected of [null, null, ref.id]) {
      const worker = await workByHand(database, ['task'])
      expect(await alone(worker.id)).toBe(expected)
      await expire(worker.id)
      await rescue()
    }
  })

  it('[S13] leaves a job cancelled whose worker dies during the cancel', async () => {
    const { producer, worker, jobs } = await running(1)
    expect(await producer.cancel(jobs[0]?.id ?? '')).toBe('cancelling')
    await expire(worker.id)
    expect(await rescue()).toMatchObject([{ rescued: 0, ended: 1 }])
    expect(await stateOf(jobs[0]?.id)).toMatchObject({ state: 'cancelled' })
    expect(await usedSlots()).toBe(0)
  })

  it('gives everybody the time to beat again after an outage: nobody is dead before the leader has led for a lease', async () => {
    const { worker } = await running(1)
    await expire(worker.id)
    const early = () => database.rows('select * from longshore.rescue(14999, 1000)')
    expect(await early()).toEqual([])
    expect(await database.rows('select is_alive from longshore.beat($1)', [worker.id])).toEqual([
      { is_alive: true },
    ])
    expect(await rescue()).toEqual([])
  })

  it('leaves what somebody holds for the next time, and the worker dead until then', async () => {
    const { worker, jobs } = await running(2)
    await expire(worker.id)
    const tx = await database.connect()
    await tx.query('begin')
    await tx.query('select from longshore.jobs where id = $1 for share', [jobs[0]?.id])
    expect(await rescue()).toEqual([{ worker_id: worker.id, rescued: 1, ended: 0, is_gone: false }])
    expect(await worker.answer(5)).toBe('dead')
    expect(await database.rows('select is_alive from longshore.beat($1)', [worker.id])).toEqual([
      { is_alive: false },
    ])
    await tx.query('rollback')
    expect(await rescue()).toEqual([{ worker_id: worker.id, rescued: 1, ended: 0, is_gone: true }])
  })
})

describe('a claim and a rescue at once', () => {
  /** A claim is about to commit when its worker is declared dead. Resolves to the jobs that nobody will ever run. */
  const claimFirst = async () => {
    const producer = deployment.producer({ tasks: [task] })
    await producer.enqueue(task, 1)
    const worker = await workByHand(database, ['task'])
    const claiming = await database.connect()
    await claiming.query('begin')
    expect(await worker.claim(1, claiming)).toHaveLength(1)
    await expire(worker.id)
    await rescue()
    await claiming.query('commit')
    await rescue()
    const stranded = await database.rows(
      `select j.id from longshore.jobs j where j.state = 'running'
       and not exists (select from longshore.workers w where w.id = j.worker_id)`,
    )
    await database.rows('delete from longshore.jobs')
    await database.rows('update longshore.slot_groups set used = 0')
    return stranded
  }

  const GUARD = {
    name: 'claim',
    guard: 'worker-lock',
    replacement: 'true',
  }

  it('[S7] the claim first: the rescue comes back for its jobs', async () => {
    deployment.skipAudit('a guard is taken away, and jobs are removed by hand')
    expect(await claimFirst()).toEqual([])
    // Without the lock the job would be running for ever under a worker that nobody looks at any more.
    expect(await weakened(database, [GUARD], claimFirst)).toHaveLength(1)
  })

  it('[S7] the rescue first: a dead worker can claim nothing', async () => {
    const { worker } = await running(1)
    const producer = deployment.producer()
    await producer.enqueue(task, 2)
    await expire(worker.id)
    const rescuing = await database.connect()
    await rescuing.query('begin')
    await rescuing.query(RESCUE)
    expect(await worker.answer(1)).toBe('busy')
    await rescuing.query('commit')
    expect(await worker.answer(1)).toBe('dead')
    expect(await database.rows("select from longshore.jobs where state = 'running'")).toEqual([])
  })
})

describe('a beat and a rescue at once', () => {
  const beat = 'select is_alive from longshore.beat($1)'

  it('the rescue first: the beat waits, and hears that it is dead', async () => {
    const { worker } = await running(1)
    await expire(worker.id)
    const [rescuing, beating] = [await database.connect(), await database.connect()]
    await rescuing.query('begin')
    await rescuing.query(RESCUE)
    const beaten = beating.query(beat, [worker.id])
    await waitsForLock(database, beating)
    await rescuing.query('commit')
    expect((await beaten).rows).toEqual([{ is_alive: false }])
  })

  /** The rescue has seen that the lease ran out, and stands still while the worker beats. */
  const beatMeanwhile = async () => {
    const { worker } = await running(1)
    await expire(worker.id)
    const [holder, rescuing] = [await database.connect(), await database.connect()]
    await holder.query('select pg_advisory_lock(77)')
    const rescued = rescuing.query(RESCUE)
    await waitsForLock(database, rescuing)
    expect(await database.rows(beat, [worker.id])).toEqual([{ is_alive: true }])
    await holder.query('select pg_advisory_unlock(77)')
    const { rows } = await rescued
    await database.rows('delete from longshore.jobs')
    await database.rows('update longshore.slot_groups set used = 0')
    return rows
  }
  const paused = {
    name: 'rescue',
    point: 'before-lock',
    insertion: `set local lock_timeout = 0; ${pauseAt(77)}`,
  }

  it('the beat first: the worker lives', async () => {
    deployment.skipAudit('a guard is taken away, and jobs are removed by hand')
    expect(await weakened(database, [paused], beatMeanwhile)).toEqual([])
    // Without looking again under the lock, a worker that lives would be declared dead.
    const blind = { name: 'rescue', guard: 'look-again' }
    expect(await weakened(database, [paused, blind], beatMeanwhile)).toHaveLength(1)
  })

  it('[S7] breaks off a claim whose answer the worker does not read: its jobs and slots go to others', async () => {
    const producer = deployment.producer({ tasks: [large] })
    await producer.enqueueMany(large, Array(300).fill('x'.repeat(60_000)))
    const worker = await workByHand(database, ['large'])
    const client = await database.connect(database.urlOf('worker'))
    const secret = newSecret()
    await database.rows('update longshore.workers set secret = sha256($1) where id = $2', [secret, worker.id])
    const claim = client.query(
      "select * from longshore.settle_and_claim($1, '{}', '{}', null, null, 300, p_secret => $2)",
      [worker.id, secret],
    )
    // As when its process is paused: what the network holds is full, and the transaction stays open.
    const { stream } = (client as unknown as { connection: { stream: Socket } }).connection
    stream.pause()
    await eventually('the answer is stuck', async () => {
      const [row] = await database.rows<{ event: string }>(
        'select wait_event as event from pg_stat_activity where pid = $1',
        [client.backendPid],
      )
      return row?.event === 'ClientWrite'
    })
    await expire(worker.id)
    await eventually('the worker is gone', async () => (await rescue()).some(row => row.is_gone))
    expect(await (await workByHand(database, ['large'])).claim(300)).toHaveLength(300)
    stream.resume()
    await expect(claim).rejects.toThrow()
  })
})
