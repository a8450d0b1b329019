import { describe, expect, it } from 'vitest'
import { defineTask, newJobId } from '../../src/index.ts'
import { auditPostgres } from '../../src/postgres/audit.ts'
import { type Claimed, settling, workByHand } from '../support/by-hand.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { waitsForLock } from '../support/locks.ts'
import { pauseAt, type Weakness, weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const step = defineTask<string>({ name: 'step', retry: { maxAttempts: 1 } })

/** Jobs of one workflow, the first of them running under a worker by hand. */
async function running(payloads: string[], workflow = 'w') {
  const producer = deployment.producer({ tasks: [step] })
  const refs = await producer.enqueueMany(step, payloads, { workflow })
  const hand = await workByHand(database, ['step'])
  const [head] = await hand.claim(10)
  if (!head) throw new Error('nothing to claim')
  const next = async () => (await hand.claim(10)).map(job => job.payload).join()
  return { producer, refs, hand, head, next }
}

const idsOf = (refs: { id: string }[]) => refs.map(ref => ref.id)
const cancel = (client: TestClient, ...ids: (string | undefined)[]) =>
  client.query('select answer from longshore.cancel($1)', [ids])
const complete = async (client: TestClient, worker: number, job: Claimed) => {
  await client.query("select set_config('longshore_run.lease', $1, true)", [job.lease_token])
  return client.query('select longshore.complete($1, $2, $3, null) as answer', [
    worker,
    job.id,
    job.lease_token,
  ])
}

/** Whether the answer of a statement is an error, and which. */
const codeOf = (statement: Promise<unknown>) =>
  statement.then(
    () => 'done',
    (error: { code?: string }) => error.code,
  )

/** What does not hold of the workflows. */
const broken = async () => {
  const db = {
    query: async (text: string, values?: unknown[]) => ({ rows: await database.rows(text, values) }),
  }
  return (await auditPostgres(db)).filter(found => found.invariant === 9).map(found => found.problem)
}
const STRANDED = expect.stringContaining('no turn, and is the first')

const PATIENT: Weakness = { name: 'settle', setting: 'lock_timeout', value: '10s' }

describe('the end of the head and an enqueue at once', () => {
  const enqueueFirst = async () => {
    const { producer, hand, head, next } = await running(['a'])
    await producer.enqueue(step, 'plain')
    await producer.enqueue(step, 'other', { workflow: 'v' })
    const others = await hand.claim(10)
    expect(others).toHaveLength(2)
    const tx = await database.connect()
    await tx.query('begin')
    await producer.enqueue(step, 'b', { workflow: 'w', tx })
    const busy = await hand.settle([head, ...others].map(settling))
    await tx.query('commit')
    if (busy.length > 0) await hand.settle([settling(head)])
    return { busy, head, next }
  }

  it('[W2] [X1] the enqueue first: the end waits for its commit, and nothing else does', async () => {
    const { busy, head, next } = await enqueueFirst()
    expect(busy).toEqual([{ id: head.id, answer: 'busy' }])
    expect(await next()).toBe('b')
  })

  it('[W2] the enqueue first: without the lock of the workflow the new job would wait for ever', async () => {
    deployment.skipAudit('a guard is taken away')
    const guards: Weakness[] = [
      { name: 'pass_on', guard: 'workflow-lock' },
      { name: 'pass_on', guard: 'no-empty-workflow' },
    ]
    await weakened(database, guards, enqueueFirst)
    expect(await broken()).toContainEqual(STRANDED)
  })

  it.each(['commit', 'rollback'])(
    '[W2] the end first, then its %s: the new job is placed by it',
    async end => {
      const { producer, hand, head, next } = await running(['a'])
      const [settles, tx] = [await database.connect(), await database.connect()]
      await settles.query('begin')
      await tx.query('begin')
      expect(await hand.settle([settling(head)], settles)).toEqual([])
      const enqueued = producer.enqueue(step, 'b', { workflow: 'w', tx })
      await waitsForLock(database, tx)
      await settles.query(end)
      const ref = await enqueued
      await tx.query('commit')
      expect(await producer.get(ref)).toMatchObject({ state: end === 'commit' ? 'ready' : 'waiting' })
      if (end === 'rollback') await hand.settle([settling(head)])
      expect(await next()).toBe('b')
    },
  )

  const twoFirst = async () => {
    const producer = deployment.producer({ tasks: [step] })
    await producer.enqueue(step, 'elsewhere')
    const [one, two] = [await database.connect(), await database.connect()]
    await one.query('begin')
    await two.query('begin')
    await producer.enqueue(step, 'a', { workflow: 'w', tx: one })
    const second = codeOf(
      producer.enqueue(step, 'b', { workflow: 'w', tx: two }).finally(() => two.query('commit')),
    )
    await waitsForLock(database, two)
    await one.query('commit')
    return second
  }

  it('[W2] two that would both be the first: one has the turn; the index is the last guard', async () => {
    deployment.skipAudit('a guard is taken away')
    expect(await twoFirst()).toBe('done')
    expect(await broken()).toEqual([])
    await database.rows('truncate longshore.jobs, longshore.workflows')
    // Who is there already is read in the statement that waits for the lock, and so from before.
    const guards: Weakness[] = [
      {
        name: 'insert_linked',
        guard: 'not-halted',
        replacement: 'not exists (select from longshore.jobs j where j.workflow = l.id)',
      },
      { name: 'insert_linked', guard: 'one-turn' },
    ]
    expect(await weakened(database, guards, twoFirst)).toBe('23505')
  })

  const endsWhileEnqueuedAgain = async () => {
    const { producer, hand, head } = await running(['a', 'b'])
    const [gatekeeper, completing, tx] = [
      await database.connect(),
      await database.connect(),
      await database.connect(),
    ]
    await completing.query("set deadlock_timeout = '20ms'")
    await tx.query("set deadlock_timeout = '1min'")
    await gatekeeper.query('select pg_advisory_lock(7)')
    await completing.query('begin')
    // It has ended the job, and does not have the workflow yet.
    const completed = codeOf(complete(completing, hand.id, head))
    await waitsForLock(database, completing)
    await tx.query('begin')
    const again = producer.enqueue(step, 'a', { workflow: 'w', id: head.id, tx })
    await waitsForLock(database, tx)
    await gatekeeper.query('select pg_advisory_unlock(7)')
    const answer = await completed
    await completing.query(answer === 'done' ? 'commit' : 'rollback')
    expect(await again).toMatchObject({ isNew: false })
    await tx.query('commit')
    return answer
  }
  const BEFORE_LOCK: Weakness = { name: 'pass_on', point: 'workflows-found', insertion: pauseAt(7) }

  it('[W2] of the very same job: whoever enqueues it again waits without the workflow', async () => {
    deployment.skipAudit('a guard is taken away')
    expect(await weakened(database, [BEFORE_LOCK], endsWhileEnqueuedAgain)).toBe('done')
    await database.rows(
      'truncate longshore.jobs, longshore.finished_jobs, longshore.workflows, longshore.workers',
    )
    const guard: Weakness = { name: 'insert_linked', guard: 'job-locks' }
    expect(await weakened(database, [BEFORE_LOCK, guard], endsWhileEnqueuedAgain)).toBe('40P01')
  })
})

describe('the end of the head and a cancel of the next at once', () => {
  const cancelFirst = async () => {
    const { refs, hand, head, next } = await running(['a', 'b', 'c'])
    const [cancels, settles] = [await database.connect(), await database.connect()]
    await cancels.query('begin')
    await cancel(cancels, refs[1]?.id)
    const settled = hand.settle([settling(head)], settles)
    await waitsForLock(database, settles)
    await cancels.query('commit')
    expect(await settled).toEqual([])
    return next()
  }

  it('[W2] [S13] the cancel first: the turn goes to the one after it', async () => {
    deployment.skipAudit('a guard is taken away')
    expect(await weakened(database, [PATIENT], cancelFirst)).toBe('c')
    expect(await broken()).toEqual([])
    await database.rows('truncate longshore.jobs, longshore.workflows')
    const guard: Weakness = { name: 'pass_on', guard: 'look-again' }
    expect(await weakened(database, [PATIENT, guard], cancelFirst)).toBe('')
    expect(await broken()).toContainEqual(STRANDED)
  })

  it('[W2] [S13] the cancel first, and not committed for long: the end is settled later, its neighbours at once', async () => {
    const { producer, refs, hand, head, next } = await running(['a', 'b', 'c'])
    await producer.enqueue(step, 'plain')
    const others = await hand.claim(10)
    const tx = await database.connect()
    await tx.query('begin')
    expect(await producer.cancel(refs[1]?.id ?? '', { tx })).toBe('cancelled')
    expect(await hand.settle([head, ...others].map(settling))).toEqual([{ id: head.id, answer: 'busy' }])
    await tx.query('rollback')
    expect(await hand.settle([settling(head)])).toEqual([])
    expect(await next()).toBe('b')
  })

  it('[W2] [S14] looks whether the next is free before it waits: many heads do not wait one after another', async () => {
    deployment.skipAudit('a guard is taken away')
    const { producer, refs, head } = await running(['a', 'b'])
    const [tx, ends] = [await database.connect(), await database.connect()]
    await tx.query('begin')
    expect(await producer.change(refs[1]?.id ?? '', { priority: 5, tx })).toBe('changed')
    const end = () =>
      ends.query(
        "select longshore.end_linked(j, 'succeeded') as ready from longshore.jobs j where j.id = $1",
        [head.id],
      )
    expect((await end()).rows).toEqual([{ ready: null }])
    const guard: Weakness = { name: 'end_linked', guard: 'look-first' }
    await weakened(database, [guard], async () => {
      const ended = end()
      await waitsForLock(database, ends)
      await tx.query('commit')
      expect((await ended).rows).toEqual([{ ready: [refs[1]?.id] }])
    })
  })

  const settleFirst = async () => {
    const { refs, hand, head, next } = await running(['a', 'b', 'c'])
    const [cancels, settles] = [await database.connect(), await database.connect()]
    await settles.query('begin')
    expect(await hand.settle([settling(head)], settles)).toEqual([])
    const cancelled = cancel(cancels, refs[1]?.id)
    await waitsForLock(database, cancels)
    await settles.query('commit')
    expect((await cancelled).rows).toEqual([{ answer: 'cancelled' }])
    return next()
  }

  it('[W2] [S13] the end first: the cancel finds the job with the turn, and passes it on', async () => {
    deployment.skipAudit('a guard is taken away')
    expect(await settleFirst()).toBe('c')
    expect(await broken()).toEqual([])
    await database.rows('truncate longshore.jobs, longshore.workflows')
    const guard = { name: 'cancel', guard: 'pass-turn' }
    expect(await weakened(database, [guard], settleFirst)).toBe('')
    expect(await broken()).toContainEqual(STRANDED)
  })

  const cancelAndComplete = async () => {
    const { refs, hand, head } = await running(['a', 'b', 'c'])
    const [gatekeeper, cancels, completing] = [
      await database.connect(),
      await database.connect(),
      await database.connect(),
    ]
    await cancels.query("set deadlock_timeout = '20ms'")
    await completing.query("set deadlock_timeout = '1min'")
    await gatekeeper.query('select pg_advisory_lock(7)')
    const cancelled = codeOf(cancel(cancels, refs[1]?.id))
    await waitsForLock(database, cancels)
    await completing.query('begin')
    const completed = complete(completing, hand.id, head)
    await waitsForLock(database, completing)
    await gatekeeper.query('select pg_advisory_unlock(7)')
    const answer = await cancelled
    expect((await completed).rows).toEqual([{ answer: 'completed' }])
    await completing.query('commit')
    return answer
  }

  it('[W2] [S13] neither waits for the other: who cancels a job without the turn needs no workflow', async () => {
    deployment.skipAudit('a guard is taken away')
    const pause: Weakness = { name: 'cancel', point: 'jobs-ended', insertion: pauseAt(7) }
    expect(await weakened(database, [pause], cancelAndComplete)).toBe('done')
    expect(await broken()).toEqual([])
    await database.rows('truncate longshore.jobs, longshore.workflows, longshore.workers')
    const guard: Weakness = { name: 'cancel', guard: 'has-turn', replacement: 'true' }
    expect(await weakened(database, [pause, guard], cancelAndComplete)).toBe('40P01')
  })
})

describe('the ends of two heads at once', () => {
  /** Each of the next ones also runs after the head of the other workflow. */
  const crossed = async () => {
    const producer = deployment.producer({ tasks: [step] })
    const group = producer.group()
    const [p, q] = ['p', 'q'].map((name, n) => group.add(step, name, { workflow: `w${n}` }))
    if (!p || !q) throw new Error('not added')
    const next = [
      group.add(step, 'x', { workflow: 'w0', after: q }),
      group.add(step, 'y', { workflow: 'w1', after: p }),
    ]
    await group.submit()
    const hand = await workByHand(database, ['step'])
    const heads = await hand.claim(10)
    expect(heads.map(job => job.payload)).toEqual(['p', 'q'])
    const gatekeeper = await database.connect()
    const clients = [await database.connect(), await database.connect()]
    await gatekeeper.query('select pg_advisory_lock(7)')
    const ends = []
    for (const [n, client] of clients.entries()) {
      await client.query("set deadlock_timeout = '20ms'")
      await client.query('begin')
      ends.push(
        codeOf(complete(client, hand.id, heads[n] as Claimed)).then(async answer => {
          await client.query(answer === 'done' ? 'commit' : 'rollback')
          return answer
        }),
      )
      await waitsForLock(database, client)
    }
    await gatekeeper.query('select pg_advisory_unlock(7)')
    const answers = await Promise.all(ends)
    return { answers, producer, next }
  }

  it('[W2] [S3] whose next jobs run after each other’s head: neither waits for the other', async () => {
    deployment.skipAudit('a guard is taken away')
    const pause: Weakness = { name: 'pass_on', point: 'workflows-held', insertion: pauseAt(7) }
    const { answers, producer, next } = await weakened(database, [pause], crossed)
    expect(answers).toEqual(['done', 'done'])
    for (const job of next) expect(await producer.get(job)).toMatchObject({ state: 'ready' })
    expect(await broken()).toEqual([])
    await database.rows('truncate longshore.jobs, longshore.workflows, longshore.workers, longshore.groups')
    // The next ones first, the dependents after them.
    const guards: Weakness[] = [
      { name: 'pass_on', guard: 'one-order' },
      { name: 'pass_on', point: 'heads-held', insertion: pauseAt(7) },
    ]
    const red = await weakened(database, guards, crossed)
    expect(red.answers).toContain('40P01')
  })

  it('[W2] [X1] each of which enqueues into the other workflow: one is refused, and nothing is lost', async () => {
    const { producer, hand, head } = await running(['a'], 'w0')
    await producer.enqueue(step, 'b', { workflow: 'w1' })
    const [other] = await hand.claim(10)
    if (!other) throw new Error('not claimed')
    const [one, two] = [await database.connect(), await database.connect()]
    await one.query("set deadlock_timeout = '1min'")
    await two.query("set deadlock_timeout = '20ms'")
    const begin = async (tx: TestClient, workflow: string) => {
      await tx.query('begin')
      await producer.enqueue(step, `into ${workflow}`, { workflow, tx })
    }
    await begin(one, 'w1')
    await begin(two, 'w0')
    const first = complete(one, hand.id, head)
    await waitsForLock(database, one)
    expect(await codeOf(complete(two, hand.id, other))).toBe('40P01')
    await two.query('rollback')
    expect((await first).rows).toEqual([{ answer: 'completed' }])
    await one.query('commit')
    await begin(two, 'w0')
    expect((await complete(two, hand.id, other)).rows).toEqual([{ answer: 'completed' }])
    await two.query('commit')
    expect((await hand.claim(10)).map(job => job.payload).sort()).toEqual(['into w0', 'into w1'])
  })
})

describe.each(['repeatable read', 'serializable'])('an enqueue in a %s transaction', isolation => {
  /** Its snapshot is from before `meanwhile`. */
  const enqueueAfter = async (
    producer: ReturnType<typeof deployment.producer>,
    meanwhile: () => Promise<unknown>,
    options: { id?: string } = {},
  ) => {
    const tx = await database.connect()
    await tx.query(`begin isolation level ${isolation}`)
    await tx.query('select from longshore.jobs limit 1')
    await meanwhile()
    const answer = await codeOf(producer.enqueue(step, 'late', { workflow: 'w', tx, ...options }))
    await tx.query(answer === 'done' ? 'commit' : 'rollback')
    return answer
  }

  const afterTheLast = async () => {
    const { producer, hand, head, next } = await running(['a'])
    const answer = await enqueueAfter(producer, () => hand.settle([settling(head)]))
    return { answer, next }
  }

  it('[W2] [X1] that does not know of the end of the last job begins the workflow anew', async () => {
    deployment.skipAudit('a guard is taken away')
    const { answer, next } = await afterTheLast()
    expect(answer).toBe('done')
    expect(await next()).toBe('late')
    expect(await broken()).toEqual([])
    await database.rows('truncate longshore.jobs, longshore.workflows')
    // A row that is left: the last job is still seen in it, and waited for.
    const guard: Weakness = { name: 'pass_on', guard: 'no-empty-workflow' }
    const red = await weakened(database, [guard], afterTheLast)
    expect(red.answer).toBe('done')
    expect(await red.next()).toBe('')
    expect(await broken()).toContainEqual(STRANDED)
  })

  it('[W2] [X1] that does not know that the turn has passed waits for its own', async () => {
    const { producer, hand, head, next } = await running(['a', 'b'])
    expect(await enqueueAfter(producer, () => hand.settle([settling(head)]))).toBe('done')
    const [second] = await hand.claim(10)
    expect(second?.payload).toBe('b')
    await hand.settle([settling(second as Claimed)])
    expect(await next()).toBe('late')
  })

  it('[W2] [X1] that does not know of a later enqueue, a halt or a resume is to be tried again', async () => {
    const { producer, hand, head, next } = await running(['a', 'b'])
    const enqueue = () => producer.enqueue(step, 'c', { workflow: 'w' })
    expect(await enqueueAfter(producer, enqueue)).toBe('40001')
    await database.rows('update longshore.jobs set halts = true')
    const fail = () =>
      hand.settleOthers([{ id: head.id, token: head.lease_token, outcome: 'failed', error: {} }])
    expect(await enqueueAfter(producer, fail)).toBe('40001')
    expect(await enqueueAfter(producer, () => producer.resumeWorkflow('w'))).toBe('40001')
    expect(await next()).toBe('b')
    // Nor of one into a workflow that began meanwhile.
    const begin = () => producer.enqueue(step, 'c', { workflow: 'v' })
    const tx = await database.connect()
    await tx.query(`begin isolation level ${isolation}`)
    await tx.query('select from longshore.jobs limit 1')
    await begin()
    expect(await codeOf(producer.enqueue(step, 'late', { workflow: 'v', tx }))).toBe('40001')
    await tx.query('rollback')
  })

  const again = async () => {
    const { producer, hand } = await running(['a'])
    const id = newJobId()
    await producer.enqueue(step, 'own', { id, workflow: 'v' })
    const own = await hand.claim(10)
    return { answer: await enqueueAfter(producer, () => hand.settle(own.map(settling)), { id }), id }
  }

  it('[W2] [X1] of a job that has ended meanwhile is to be tried again, and does not make it twice', async () => {
    deployment.skipAudit('a guard is taken away')
    expect((await again()).answer).toBe('40001')
    await database.rows('truncate longshore.jobs, longshore.workflows')
    const guard: Weakness = { name: 'insert_linked', guard: 'job-locks' }
    const red = await weakened(database, [guard], again)
    expect(red.answer).toBe('done')
    expect(await database.rows('select from longshore.jobs where id = $1', [red.id])).toHaveLength(1)
  })

  it('[W2] [S13] cannot cancel jobs of a workflow', async () => {
    const { refs } = await running(['a', 'b'])
    const tx = await database.connect()
    await tx.query(`begin isolation level ${isolation}`)
    await expect(cancel(tx, ...idsOf(refs))).rejects.toThrow('cannot end a job that others may wait for')
    await tx.query('rollback')
  })
})

describe('the guards of the tables', () => {
  it.each([
    ['jobs_one_turn', "update longshore.jobs set has_turn = true, pending = null, state = 'ready'"],
    [
      'nobody_runs_out_of_turn',
      "update longshore.jobs set pending = null, state = 'ready' where not has_turn",
    ],
    ['a_workflow_has_turns', 'update longshore.jobs set has_turn = null where not has_turn'],
  ])('[W2] %s refuses what must not be', async (name, damage) => {
    await running(['a', 'b'])
    await expect(database.rows(damage)).rejects.toThrow(name)
  })
})
