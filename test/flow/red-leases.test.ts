/** The red side of leases: who may end a run, and when a worker is dead, without one of the guards. */
import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { newSecret } from '../../src/postgres/secret.ts'
import { type Claimed, settling, workByHand } from '../support/by-hand.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { byRule, type Guard, underWay, useGuards } from '../support/guards.ts'
import { waitsForLock } from '../support/locks.ts'
import { pauseAt } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const { check, begin, barrier } = useGuards(database, deployment)
const task = defineTask({ name: 'task', concurrency: 5, retry: { maxAttempts: 3, maxRescues: 1 } })
const BARRIER = 82

type Worker = Awaited<ReturnType<typeof workByHand>>

/** A worker with so many runs. */
const running = async (jobs = 1) => {
  const producer = deployment.producer({ tasks: [task] })
  await producer.enqueueMany(
    task,
    Array.from({ length: jobs }, (_, n) => n),
  )
  const worker = await workByHand(database, ['task'])
  const claims: Claimed[] = []
  for (let calls = 0; calls < jobs; calls++) claims.push(...(await worker.claim(1)))
  return { producer, worker, claims, first: claims[0] as Claimed }
}
const stateOf = async (id: string) =>
  (
    await database.rows<{ state: string; worker_id: number }>(
      'select state, worker_id from longshore.jobs where id = $1',
      [id],
    )
  )[0]
const expire = (worker: Worker) =>
  database.rows("update longshore.workers set expires_at = now() - interval '1 second' where id = $1", [
    worker.id,
  ])
const RESCUE = 'select * from longshore.rescue(3600000, 1000)'
const retry = (worker: Worker, run: Claimed, client?: TestClient) =>
  worker.settleOthers([{ ...settling(run), outcome: 'retry', delayMs: 0 }], client)

/** The same worker has the job a second time; its first run ends only now. */
const staleRun = async (settle: (worker: Worker, stale: Claimed, others: Claimed[]) => Promise<unknown>) => {
  const { worker, claims, first } = await running(2)
  await retry(worker, first)
  const [again] = await worker.claim(1)
  expect(again?.id).toBe(first.id)
  await settle(worker, first, claims.slice(1))
  if ((await stateOf(first.id))?.state !== 'running')
    return 'a run whose lease was gone has ended the next one'
}

/** Somebody else knows id and token. */
const strangeRun = async (settle: (thief: Worker, run: Claimed, others: Claimed[]) => Promise<unknown>) => {
  const { claims, first } = await running(2)
  const thief = await workByHand(database, ['task'])
  await settle(thief, first, claims.slice(1))
  if ((await stateOf(first.id))?.state !== 'running') return 'a worker has ended the run of another'
}

const fail = (worker: Worker, run: Claimed) => worker.settleOthers([{ ...settling(run), outcome: 'failed' }])

/** In a transaction as `ctx.complete` makes it. */
const complete = async (worker: Worker, run: Claimed, client?: TestClient) => {
  const tx = client ?? (await begin())
  await tx.query("select set_config('longshore_run.lease', $1, true)", [run.lease_token])
  const { rows } = await tx.query<{ answer: string }>(
    'select longshore.complete($1, $2, $3, null) as answer',
    [worker.id, run.id, run.lease_token],
  )
  if (!client) await tx.query('commit')
  return rows[0]?.answer
}

const fences: Guard[] = [
  {
    rule: 'settle: the lease token',
    without: { name: 'settle', guard: 'own-token' },
    happens: () => staleRun((worker, stale) => worker.settle([settling(stale)])),
    tells: /a run whose lease was gone/,
  },
  {
    rule: 'settle: the worker',
    without: { name: 'move_to_history', guard: 'own-worker' },
    happens: () => strangeRun((thief, run) => thief.settle([settling(run)])),
    tells: /the run of another/,
  },
  {
    rule: 'settle, where not all is as it should be: the lease token',
    without: { name: 'settle_contended', guard: 'own-token' },
    happens: () =>
      staleRun((worker, stale, others) => worker.settle([settling(stale), ...others.map(settling)])),
    tells: /a run whose lease was gone/,
  },
  {
    rule: 'settle, where not all is as it should be: the worker',
    without: { name: 'settle_contended', guard: 'own-worker' },
    happens: () => strangeRun((thief, run) => thief.settle([settling(run)])),
    tells: /the run of another/,
  },
  {
    rule: 'settle of a failure: the lease token',
    without: { name: 'settle_unsuccessful', guard: 'own-token' },
    happens: () => staleRun(fail),
    tells: /a run whose lease was gone/,
  },
  {
    rule: 'settle of a failure: the worker',
    without: { name: 'settle_unsuccessful', guard: 'own-worker' },
    happens: () => strangeRun(fail),
    tells: /the run of another/,
  },
  {
    rule: 'complete: the lease token',
    without: { name: 'complete', guard: 'own-token' },
    happens: () => staleRun((worker, stale) => complete(worker, stale)),
    tells: /a run whose lease was gone/,
  },
  {
    rule: 'complete: the worker',
    without: { name: 'complete', guard: 'own-worker' },
    happens: () => strangeRun((thief, run) => complete(thief, run)),
    tells: /the run of another/,
  },
  {
    rule: 'complete: the transaction that holds the writes',
    without: { name: 'complete', guard: 'own-transaction' },
    happens: async () => {
      const { worker, first } = await running()
      const tx = await begin()
      await tx.query("select set_config('longshore_run.lease', $1, true)", [first.lease_token])
      await tx.query('rollback; begin') // and with it what the handler wrote
      const { rows } = await tx.query('select longshore.complete($1, $2, $3, null) as answer', [
        worker.id,
        first.id,
        first.lease_token,
      ])
      if (rows[0].answer !== 'ended') return 'a run is completed without its writes'
    },
    tells: /without its writes/,
  },
  {
    rule: 'complete: the cancel',
    without: [
      { name: 'complete', guard: 'not-cancelled' },
      { name: 'move_to_history', guard: 'cancelled-ends', replacement: 'false' },
    ],
    happens: async () => {
      const { producer, worker, first } = await running()
      await producer.cancel(first.id)
      await complete(worker, first)
    },
    tells: /^8: .* ended as succeeded/m,
  },
  {
    rule: 'logs: the progress of a run whose lease is gone',
    without: { name: 'write_logs', guard: 'latest-run' },
    happens: async () => {
      const { worker, first } = await running()
      const write = async (lease: number, done: number) => {
        await database.rows('insert into longshore.past_runs values ($1, $2, $3)', [
          first.id,
          lease,
          worker.id,
        ])
        await database.rows("select longshore.write_logs('[]', $1, $2)", [
          JSON.stringify([{ job: first.id, lease, done, total: 10, attempt: 1 }]),
          worker.id,
        ])
      }
      await write(2, 1)
      await write(1, 9)
      const [row] = await database.rows<{ done: number }>('select done from longshore.job_progress')
      if (row?.done !== 1) return 'an old run has overwritten the progress of the next'
    },
    tells: /has overwritten the progress/,
  },
]

describe('who may end a run', () => {
  it.each(byRule(fences))('[X4] %s', (_, guard) => check(guard))
})

/** Whoever ends a run has read the job, and stands still; meanwhile its worker is rescued, and another has the job. */
const whileEnding = async (end: (worker: Worker, run: Claimed, client: TestClient) => Promise<unknown>) => {
  const { worker, first } = await running()
  await expire(worker)
  const { open } = await barrier(BARRIER)
  const client = await begin()
  const ended = underWay(end(worker, first, client))
  await waitsForLock(database, client)
  await database.rows(RESCUE)
  const other = await workByHand(database, ['task'])
  await other.claim(1)
  await open()
  await ended
  await client.query('commit')
}

const races: Guard[] = [
  {
    rule: 'complete holds the job: no rescue comes in between',
    given: [{ name: 'complete', point: 'job-held', insertion: pauseAt(BARRIER) }],
    without: { name: 'complete', guard: 'job-lock' },
    happens: () => whileEnding(complete),
    tells: /has changed while it was about to end as succeeded/,
  },
  {
    rule: 'settle of a retry holds the job: no rescue comes in between',
    given: [
      { name: 'settle_unsuccessful', point: 'job-held', insertion: pauseAt(BARRIER) },
      { name: 'settle', setting: 'lock_timeout', value: '20s' },
    ],
    without: { name: 'settle_unsuccessful', guard: 'job-lock' },
    happens: () => whileEnding(retry),
    tells: /^14: .* its run ended with attempts/m,
  },
  {
    rule: 'rescue holds the job: no settle comes in between',
    given: [
      { name: 'rescue', point: 'job-held', insertion: pauseAt(BARRIER) },
      // It is the barrier that it waits for.
      { name: 'rescue', setting: 'lock_timeout', value: '20s' },
    ],
    without: { name: 'rescue', guard: 'job-lock' },
    happens: async () => {
      const { worker, first } = await running()
      await expire(worker)
      const { open } = await barrier(BARRIER)
      const client = await begin()
      const rescued = underWay(client.query(RESCUE))
      await waitsForLock(database, client)
      await worker.settle([settling(first)])
      await open()
      await rescued
      await client.query('commit')
    },
    tells: /it failed: .*used/,
  },
]

describe('two that end a run at once', () => {
  it.each(byRule(races))('[S7] %s', (_, guard) => check(guard))
})

const deaths: Guard[] = [
  {
    rule: 'a worker that is taken for dead hears so with its next beat',
    without: { name: 'beat', guard: 'not-dead' },
    happens: async () => {
      const { worker } = await running()
      await expire(worker)
      await database.rows('select longshore.rescue(3600000, 0)')
      const [row] = await database.rows<{ is_alive: boolean }>('select is_alive from longshore.beat($1)', [
        worker.id,
      ])
      if (row?.is_alive) return 'a dead worker goes on'
    },
    tells: /a dead worker goes on/,
  },
  {
    rule: 'nobody is dead before the leader has led for a lease',
    without: { name: 'rescue', guard: 'led-for-a-lease' },
    happens: async () => {
      const { worker, first } = await running()
      await expire(worker)
      await database.rows('select longshore.rescue(14999, 1000)')
      if ((await stateOf(first.id))?.state !== 'running') return 'a worker had no time to beat again'
    },
    tells: /no time to beat again/,
  },
  {
    rule: 'nobody is dead whose lease has not run out',
    without: { name: 'rescue', guard: 'expired', replacement: 'true' },
    happens: async () => {
      const { first } = await running()
      await database.rows(RESCUE)
      if ((await stateOf(first.id))?.state !== 'running') return 'a job was taken from a worker that lives'
    },
    tells: /taken from a worker that lives/,
  },
  {
    rule: 'a rescue gives the attempt back',
    without: { name: 'rescue', guard: 'attempt-back' },
    happens: async () => {
      const { worker } = await running()
      await expire(worker)
      await database.rows(RESCUE)
    },
    tells: /^14: .* its run ended with attempts 1 → 1 and rescues 0 → 1/m,
  },
  {
    rule: 'a job that outlives too many workers is poison',
    without: { name: 'rescue', guard: 'poison', replacement: 'false' },
    happens: async () => {
      await deployment.producer({ tasks: [task] }).enqueue(task, 1)
      for (let deaths = 0; deaths < 2; deaths++) {
        const worker = await workByHand(database, ['task'])
        await worker.claim(1)
        await expire(worker)
        await database.rows(RESCUE)
      }
    },
    tells: /^14: .* 2 rescues of 1/m,
  },
  {
    rule: 'a job that was being cancelled is not run again when its worker dies',
    without: { name: 'rescue', guard: 'cancelled-ends' },
    happens: async () => {
      const { producer, worker, first } = await running()
      await producer.cancel(first.id)
      await expire(worker)
      await database.rows(RESCUE)
    },
    tells: /only_running_is_being_cancelled/,
  },
  {
    rule: 'a rescue frees the slots',
    without: { name: 'rescue', guard: 'free-slots' },
    happens: async () => {
      const { worker } = await running()
      await expire(worker)
      await database.rows(RESCUE)
    },
    tells: /^5: .* used 1, held by 0 running jobs/m,
  },
  {
    rule: 'the row of a dead worker stays until all its jobs are rescued',
    without: { name: 'rescue', guard: 'no-job-left' },
    happens: async () => {
      const { worker, first } = await running()
      await expire(worker)
      const holder = await begin()
      await holder.query('select from longshore.jobs where id = $1 for update', [first.id])
      await database.rows(RESCUE)
    },
    tells: /^13: .* it runs under worker \d+, which does not exist/m,
  },
  {
    rule: 'a worker does not leave while a job runs under it',
    without: { name: 'unregister_worker', guard: 'no-job-left' },
    happens: async () => {
      const { worker } = await running()
      await database.rows('select longshore.unregister_worker($1)', [worker.id])
    },
    tells: /^13: .* it runs under worker \d+, which does not exist/m,
  },
  {
    rule: 'a worker does not leave while a claim of it is under way',
    without: { name: 'unregister_worker', guard: 'worker-lock' },
    happens: async () => {
      await deployment.producer({ tasks: [task] }).enqueue(task, 1)
      const worker = await workByHand(database, ['task'])
      const claiming = await begin()
      await worker.claim(1, claiming)
      await database.rows('select longshore.unregister_worker($1)', [worker.id])
      await claiming.query('commit')
    },
    tells: /^13: .* it runs under worker \d+, which does not exist/m,
  },
  {
    rule: 'a claim that is under way while its worker is taken for dead is broken off only if nobody reads its answer',
    without: { name: 'end_claims', guard: 'only-unread' },
    happens: async () => {
      await deployment.producer({ tasks: [task] }).enqueue(task, 1)
      const worker = await workByHand(database, ['task'])
      const claiming = await database.connect(database.urlOf('worker'))
      await claiming.query('begin')
      const secret = newSecret()
      await database.rows('update longshore.workers set secret = sha256($1)', [secret])
      await claiming.query(
        "select longshore.settle_and_claim($1, '{}', '{}', null, null, 1, p_secret => $2)",
        [worker.id, secret],
      )
      await expire(worker)
      await database.rows('select longshore.rescue(3600000, 1000)')
      await claiming.query('rollback')
    },
    tells: /terminat|connection error/,
  },
]

describe('the death of a worker', () => {
  it.each(byRule(deaths))('[S7] %s', (_, guard) => check(guard))
})
