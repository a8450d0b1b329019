import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { counter, gate } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const task = defineTask({ name: 'task' })

async function claimed(jobs: number) {
  const producer = deployment.producer()
  await producer.enqueueMany(
    task,
    Array.from({ length: jobs }, (_, n) => n),
  )
  const worker = await workByHand(database, ['task'])
  return { producer, worker, jobs: await worker.claim(jobs) }
}

const stateOf = async (id: string | undefined) =>
  (
    await database.rows<{ state: string }>(
      'select state from longshore.jobs where id = $1 union all select state from longshore.finished_jobs where id = $1',
      [id],
    )
  ).map(row => row.state)

describe('settle', () => {
  it('moves jobs from the unfinished to the history, with results and timings', async () => {
    const { producer, worker, jobs } = await claimed(3)
    const [a, b, c] = jobs
    if (!a || !b || !c) throw new Error('not claimed')
    expect(await worker.settle(jobs.map(settling), undefined, { [b.id]: { fine: true } })).toEqual([])
    expect(await database.rows('select from longshore.jobs')).toEqual([])
    expect(await producer.get(b.id)).toMatchObject({
      state: 'succeeded',
      result: { fine: true },
      payload: b.payload,
    })
    expect(await producer.get(c.id)).toMatchObject({ state: 'succeeded', result: null })
    const finished = await producer.get(a.id)
    if (!finished?.isFinished) throw new Error('not finished')
    expect(finished.finishedAt.getTime()).toBeGreaterThanOrEqual(finished.startedAt?.getTime() ?? Infinity)
  })

  it('[X4] refuses a run whose lease is gone, and changes nothing', async () => {
    const { worker, jobs } = await claimed(2)
    const [stale, good] = jobs
    if (!stale || !good) throw new Error('not claimed')
    // The same worker holds the job again, under a new token: the old run must not end the new one.
    await worker.settleOthers([{ id: stale.id, token: stale.lease_token, outcome: 'retry', delayMs: 0 }])
    const [again] = await worker.claim(1)
    expect(again?.id).toBe(stale.id)
    expect(await worker.settle([settling(stale), settling(good)])).toEqual([{ id: stale.id, answer: 'lost' }])
    expect(await stateOf(stale.id)).toEqual(['running'])
    expect(await stateOf(good.id)).toEqual(['succeeded'])
    for (const outcome of ['failed', 'retry', 'released']) {
      expect(
        await worker.settleOthers([{ id: stale.id, token: stale.lease_token, outcome, delayMs: 0 }]),
      ).toEqual([{ id: stale.id, answer: 'lost' }])
    }
    expect(await stateOf(stale.id)).toEqual(['running'])
  })

  it("[X4] refuses another worker's lease", async () => {
    const { jobs } = await claimed(1)
    const thief = await workByHand(database, ['task'])
    const [job] = jobs
    if (!job) throw new Error('not claimed')
    expect(await thief.settle([settling(job)])).toEqual([{ id: job.id, answer: 'lost' }])
    for (const outcome of ['failed', 'retry', 'released']) {
      expect(await thief.settleOthers([{ id: job.id, token: job.lease_token, outcome, delayMs: 0 }])).toEqual(
        [{ id: job.id, answer: 'lost' }],
      )
    }
    expect(await stateOf(job.id)).toEqual(['running'])
  })

  it('[S10] answers a repeated settle, whose first reply was lost, as settled', async () => {
    const { worker, jobs } = await claimed(2)
    const [a, b] = jobs
    if (!a || !b) throw new Error('not claimed')
    expect(await worker.settle(jobs.map(settling))).toEqual([])
    expect(await worker.settle(jobs.map(settling))).toEqual([])
    expect(await worker.settleOthers([{ id: a.id, token: a.lease_token, outcome: 'failed' }])).toEqual([])
    expect(await stateOf(a.id)).toEqual(['succeeded'])
    expect(await stateOf(b.id)).toEqual(['succeeded'])
  })

  it('ends a job whose id is in the history already, from an earlier life, instead of failing for ever', async () => {
    deployment.skipAudit('rows of an earlier life are put into the history by hand')
    const { worker, jobs } = await claimed(3)
    const [a, b, c] = jobs
    if (!a || !b || !c) throw new Error('not claimed')
    await database.rows(
      `insert into longshore.finished_jobs
         (id, score, lease_token, created_at, finished_at, lane, keep_until, state, attempts, max_attempts, payload)
       select id, score, -1, created_at, now(), lane, (now() at time zone 'utc')::date + 7, 'succeeded', 1, 1, '"old"'
       from longshore.jobs where id = any ($1)`,
      [[a.id, b.id]],
    )
    // The token in the history is another one: this run is not settled, and not lost either.
    expect(await worker.settle([a, c].map(settling))).toEqual([])
    expect(await worker.settleOthers([{ id: b.id, token: b.lease_token, outcome: 'failed' }])).toEqual([])
    expect(await database.rows('select from longshore.jobs')).toEqual([])
    expect(await stateOf(c.id)).toEqual(['succeeded'])
    // And a run of which only an earlier life is in the history is lost, not settled.
    expect(await worker.settle([{ id: a.id, token: '12345' }])).toEqual([{ id: a.id, answer: 'lost' }])
  })

  it('[X5] tells whoever waits, whichever way a job ends', async () => {
    const { worker, jobs } = await claimed(4)
    const [fast, careful, held, failed] = jobs
    if (!fast || !careful || !held || !failed) throw new Error('not claimed')
    const told: string[] = []
    const ears = await database.connect()
    ears.on('notification', message => told.push(message.payload ?? ''))
    await ears.query(`listen ${ears.escapeIdentifier('"longshore".waiter_ears')}`)
    for (const job of jobs) {
      await database.rows("insert into longshore.awaited values ($1, 'ears', now() + interval '1 hour')", [
        job.id,
      ])
    }
    await worker.settle([settling(fast)])
    const tx = await database.connect()
    await tx.query('begin')
    await tx.query('select from longshore.jobs where id = $1 for share', [held.id])
    await worker.settle([careful, held].map(settling))
    await tx.query('rollback')
    await worker.settleOthers([{ id: failed.id, token: failed.lease_token, outcome: 'failed' }])
    await ears.query('select 1')
    expect(told).toEqual([fast.id, careful.id, failed.id])
  })

  it('answers busy for a row that somebody holds, settles its neighbours, and waits for nobody', async () => {
    const { worker, jobs } = await claimed(3)
    const [held, x, y] = jobs
    if (!held || !x || !y) throw new Error('not claimed')
    const tx = await database.connect()
    await tx.query('begin')
    await tx.query('select from longshore.jobs where id = $1 for share', [held.id])
    expect(await worker.settle([held, x].map(settling))).toEqual([{ id: held.id, answer: 'busy' }])
    expect(await worker.settleOthers([{ id: held.id, token: held.lease_token, outcome: 'failed' }])).toEqual([
      { id: held.id, answer: 'busy' },
    ])
    expect(await stateOf(x.id)).toEqual(['succeeded'])
    await tx.query('rollback')
    expect(await worker.settle([held, y].map(settling))).toEqual([])
    expect(await stateOf(held.id)).toEqual(['succeeded'])
  })

  it('[S14] settles and claims in one transaction: both or neither', async () => {
    const { producer, worker, jobs } = await claimed(1)
    const [job] = jobs
    const next = await producer.enqueue(task, 'next')
    const call = (client: { query: (text: string, values: unknown[]) => Promise<unknown> }) =>
      client.query('select * from longshore.settle_and_claim($1, $2, $3, null, null, 10)', [
        worker.id,
        [job?.id],
        [job?.lease_token],
      ])
    const tx = await database.connect()
    await tx.query('begin')
    await call(tx)
    await tx.query('rollback')
    expect([await stateOf(job?.id), await stateOf(next.id)]).toEqual([['running'], ['ready']])
    await call(tx)
    expect([await stateOf(job?.id), await stateOf(next.id)]).toEqual([['succeeded'], ['running']])
  })

  it('[W7] gives an unstarted job back without using an attempt', async () => {
    const { worker, jobs } = await claimed(1)
    const [job] = jobs
    await worker.settleOthers([{ id: job?.id, token: job?.lease_token, outcome: 'released' }])
    expect(await stateOf(job?.id)).toEqual(['ready'])
    expect(await worker.claim(1)).toMatchObject([{ id: job?.id, attempts: 1 }])
  })

  it('ends a job that has no attempts left, whatever its worker asks for', async () => {
    const producer = deployment.producer()
    const ref = await producer.enqueue(task, 1, { maxAttempts: 1 })
    const worker = await workByHand(database, ['task'])
    const [job] = await worker.claim(1)
    await worker.settleOthers([{ id: job?.id, token: job?.lease_token, outcome: 'retry', delayMs: 0 }])
    expect(await stateOf(ref.id)).toEqual(['failed'])
  })

  it('states in the table what running means', async () => {
    const { jobs } = await claimed(1)
    const update = (change: string) =>
      database.rows(`update longshore.jobs set ${change} where id = $1`, [jobs[0]?.id])
    await expect(update("state = 'ready'")).rejects.toThrow('running_has')
    await expect(update('worker_id = null')).rejects.toThrow('running_has_a_lease')
    await expect(update('started_at = null')).rejects.toThrow('running_has_started')
    await expect(update('attempts = 4')).rejects.toThrow('attempts_in_bounds')
    await expect(update("state = 'succeeded'")).rejects.toThrow('check constraint')
  })
})

describe('a worker whose row somebody holds', () => {
  it('[S14] settles the neighbours meanwhile, and the held one when it is free', async () => {
    const producer = deployment.producer()
    const inside = counter()
    const gates = [gate(), gate(), gate()]
    await deployment.worker({
      handlers: [
        task.handle(async job => {
          inside.add()
          await gates[job.payload as number]?.opened
          return job.createdAt.getTime()
        }),
      ],
    })
    const [held, neighbour, later] = await producer.enqueueMany(task, [0, 1, 2])
    if (!held || !neighbour || !later) throw new Error('not enqueued')
    await inside.reached(3)
    const tx = await database.connect()
    await tx.query('begin')
    await tx.query('select from longshore.jobs where id = $1 for share', [held.id])
    gates[0]?.open()
    gates[1]?.open()
    expect(await producer.waitFor(neighbour)).toMatchObject({ state: 'succeeded' })
    gates[2]?.open()
    expect(await producer.waitFor(later)).toMatchObject({ state: 'succeeded' })
    expect(await producer.get(held)).toMatchObject({ state: 'running' })
    await tx.query('rollback')
    const ended = await producer.waitFor(held)
    expect(ended).toMatchObject({ state: 'succeeded', attempts: 1, result: ended.createdAt.getTime() })
  })
})
