import { describe, expect, it } from 'vitest'
import { defineTask, newJobId } from '../../src/index.ts'
import { type Claimed, settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { waitsForLock } from '../support/locks.ts'
import { eventually, gate } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const step = defineTask<string, string>({
  name: 'step',
  retry: { maxAttempts: 1, maxRescues: 1 },
})

const numbers = (count: number) => Array.from({ length: count }, (_, n) => `${n}`)

/** Payloads of the workflow's jobs, finished or not, by their numbers. */
const numbered = async () =>
  (
    await database.rows<{ payload: string }>(
      `select payload from (
         select payload, workflow_seq from longshore.jobs
         union all select payload, workflow_seq from longshore.finished_jobs
       ) every where workflow_seq is not null order by workflow_seq`,
    )
  ).map(row => row.payload)

const workflows = () =>
  database.rows<{ key: string; is_halted: boolean }>(
    'select key, halted_by is not null as is_halted from longshore.workflows order by key',
  )

/** Jobs a, b, c, d of workflow w, and a worker by hand. `next` claims all that is ready. */
async function fourByHand(options: { onWorkflowFailure?: 'halt' } = {}) {
  const producer = deployment.producer({ tasks: [step] })
  const refs = await producer.enqueueMany(step, ['a', 'b', 'c', 'd'], { workflow: 'w', ...options })
  const [a, b, c, d] = refs
  if (!a || !b || !c || !d) throw new Error('not enqueued')
  const hand = await workByHand(database, ['step'])
  const running: Claimed[] = []
  const next = async () => {
    const claimed = await hand.claim(10)
    running.push(...claimed)
    return claimed.map(job => job.payload).join()
  }
  const end = async (outcome: 'succeeded' | 'failed' = 'succeeded') => {
    const jobs = running.splice(0)
    return outcome === 'succeeded'
      ? hand.settle(jobs.map(settling))
      : hand.settleOthers(jobs.map(job => ({ id: job.id, token: job.lease_token, outcome, error: {} })))
  }
  return { producer, a, b, c, d, hand, next, end }
}

describe('a cancel in a workflow', () => {
  it('[W2] [S13] of the head passes the turn, also when it runs: but then at the end of the run', async () => {
    const { producer, a, b, next, end } = await fourByHand()
    expect(await producer.cancel(a)).toBe('cancelled')
    expect(await next()).toBe('b')
    expect(await producer.cancel(b)).toBe('cancelling')
    expect(await next()).toBe('')
    await end()
    expect(await producer.get(b)).toMatchObject({ state: 'cancelled' })
    expect(await next()).toBe('c')
  })

  it('[W2] [S13] in the middle lets nobody overtake, and of the tail changes nothing', async () => {
    const { producer, a, b, c, d, next, end } = await fourByHand()
    expect(await producer.cancel(b)).toBe('cancelled')
    expect(await next()).toBe('a')
    expect(await producer.cancel(d)).toBe('cancelled')
    expect(await next()).toBe('')
    await end()
    expect(await next()).toBe('c')
    await end()
    expect(await Promise.all([a, b, c, d].map(async ref => (await producer.get(ref))?.state))).toEqual(
      ['succeeded', 'cancelled', 'succeeded', 'cancelled'], // biome-ignore format: one line
    )
    expect(await workflows()).toEqual([])
  })

  it('[W2] [S13] of all but the last in one call gives the turn to the last; of all removes the workflow', async () => {
    const { a, b, c, next, end } = await fourByHand()
    const cancel = (...refs: { id: string }[]) =>
      database.rows('select from longshore.cancel($1)', [refs.map(ref => ref.id)])
    await cancel(c, a, b)
    expect(await next()).toBe('d')
    await end()
    const again = await fourByHand()
    await cancel(again.d, again.b, again.a, again.c)
    expect(await workflows()).toEqual([])
  })

  it('[W2] [S13] while an open transaction has enqueued into it waits only where the turn would pass', async () => {
    const { producer, a, b } = await fourByHand()
    const tx = await database.connect()
    await tx.query('begin')
    await producer.enqueue(step, 'e', { workflow: 'w', tx })
    expect(await producer.cancel(b)).toBe('cancelled')
    await expect(database.rows('select from longshore.cancel(array[$1::uuid])', [a.id])).rejects.toThrow(
      'for longer than a second',
    )
    await tx.query('commit')
    expect(await producer.cancel(a)).toBe('cancelled')
  })
})

describe('the death of a worker in a workflow', () => {
  const die = async (id: number) => {
    await database.rows(
      "update longshore.workers set expires_at = now() - interval '1 second' where id = $1",
      [id],
    )
    await database.rows('select from longshore.rescue(3600000, 100)')
  }

  it('[W2] [S7] leaves the turn with the job that is rescued', async () => {
    const { hand, next } = await fourByHand()
    expect(await next()).toBe('a')
    await die(hand.id)
    const other = await workByHand(database, ['step'])
    expect((await other.claim(10)).map(job => job.payload)).toEqual(['a'])
  })

  it.each(['continue', 'halt'] as const)(
    '[W2] [S7] for which the head is taken for the cause: %s',
    async onWorkflowFailure => {
      const producer = deployment.producer({ tasks: [step] })
      await producer.enqueueMany(step, ['a', 'b'], { workflow: 'w', onWorkflowFailure })
      for (let death = 1; death <= 2; death++) {
        const hand = await workByHand(database, ['step'])
        expect((await hand.claim(10)).map(job => job.payload)).toEqual(['a'])
        await die(hand.id)
      }
      const hand = await workByHand(database, ['step'])
      const claimed = await hand.claim(10)
      expect(claimed.map(job => job.payload)).toEqual(onWorkflowFailure === 'halt' ? [] : ['b'])
      expect(await workflows()).toEqual([{ key: 'w', is_halted: onWorkflowFailure === 'halt' }])
    },
  )
})

describe('a final failure in a workflow', () => {
  it('[W2] passes the turn', async () => {
    const { next, end } = await fourByHand()
    expect(await next()).toBe('a')
    await end('failed')
    expect(await next()).toBe('b')
  })

  it('[W2] halts it where it is told to: new jobs wait as well, until it is resumed', async () => {
    const { producer, a, b, c, next, end } = await fourByHand({ onWorkflowFailure: 'halt' })
    expect(await producer.resumeWorkflow('w')).toBe('not_halted')
    expect(await next()).toBe('a')
    expect(await end('failed')).toEqual([])
    expect(await next()).toBe('')
    expect(await workflows()).toEqual([{ key: 'w', is_halted: true }])
    await producer.enqueue(step, 'e', { workflow: 'w' })
    expect(await next()).toBe('')
    const reasons = await database.rows<{ reason: string }>('select distinct reason from longshore.blocked')
    expect(reasons).toEqual([{ reason: `its workflow w was halted by the failure of job ${a.id}` }])
    // Cancelling goes on while it is halted, and does not resume it.
    expect(await producer.cancel(b)).toBe('cancelled')
    expect(await next()).toBe('')
    expect(await producer.resumeWorkflow('w')).toBe('resumed')
    expect(await producer.resumeWorkflow('w')).toBe('not_halted')
    expect(await next()).toBe('c')
    expect(await producer.get(c)).toMatchObject({ state: 'running' })
    await end()
    expect(await next()).toBe('d')
    await end()
    expect(await next()).toBe('e')
  })

  it('[W2] does not halt it when the job is cancelled', async () => {
    const { producer, a, next, end } = await fourByHand({ onWorkflowFailure: 'halt' })
    expect(await next()).toBe('a')
    await producer.cancel(a)
    await end('failed')
    expect(await next()).toBe('b')
  })

  it('[W2] keeps it halted when it is empty; resumed then, it is as new', async () => {
    const { producer, b, c, d, next, end } = await fourByHand({ onWorkflowFailure: 'halt' })
    expect(await next()).toBe('a')
    await end('failed')
    for (const ref of [b, c, d]) await producer.cancel(ref)
    expect(await workflows()).toEqual([{ key: 'w', is_halted: true }])
    const late = await producer.enqueue(step, 'late', { workflow: 'w' })
    expect(await next()).toBe('')
    await producer.cancel(late)
    expect(await producer.resumeWorkflow('w')).toBe('resumed')
    expect(await workflows()).toEqual([])
    expect(await producer.resumeWorkflow('w')).toBe('not_halted')
    expect(await producer.resumeWorkflow('never was')).toBe('not_halted')
    await producer.enqueue(step, 'new', { workflow: 'w' })
    expect(await next()).toBe('new')
  })

  it('[W2] is resumed with the transaction that it is asked in; above READ COMMITTED it is refused', async () => {
    const { producer, next, end } = await fourByHand({ onWorkflowFailure: 'halt' })
    await next()
    await end('failed')
    const tx = await database.connect()
    await tx.query('begin')
    expect(await producer.resumeWorkflow('w', { tx })).toBe('resumed')
    await expect(database.rows("select longshore.resume_workflow('w')")).rejects.toThrow(
      'somebody holds workflow w or its next job for longer than a second',
    )
    await tx.query('rollback')
    expect(await next()).toBe('')
    await tx.query('begin isolation level repeatable read')
    await expect(producer.resumeWorkflow('w', { tx })).rejects.toThrow('cannot resume a workflow')
    await tx.query('rollback')
    expect(await producer.resumeWorkflow('w')).toBe('resumed')
    expect(await next()).toBe('b')
  })
})

describe('a job of a workflow that runs after others', () => {
  /** x waits for parents p and q, and for its turn behind h. */
  async function threeReasons(options: { onWorkflowFailure?: 'halt' } = {}) {
    const producer = deployment.producer({ tasks: [step] })
    const group = producer.group()
    const h = group.add(step, 'h', { workflow: 'w' })
    const p = group.add(step, 'p')
    const q = group.add(step, 'q')
    const x = group.add(step, 'x', { workflow: 'w', after: [p, q], ...options })
    const y = group.add(step, 'y', { workflow: 'w' })
    await group.submit()
    const hand = await workByHand(database, ['step'])
    const claimed = await hand.claim(10)
    const run = (name: string) => {
      const job = claimed.find(each => each.payload === name)
      if (!job) throw new Error(`${name} was not claimed`)
      return job
    }
    const pending = async () =>
      (
        await database.rows<{ state: string; pending: number | null }>(
          'select state, pending from longshore.jobs where id = $1',
          [x.id],
        )
      )[0]
    return { producer, group, h, p, q, x, y, hand, run, pending, claimed }
  }

  it.each(['hpq', 'hqp', 'phq', 'pqh', 'qhp', 'qph'])(
    '[W2] [S3] waits for all of them and for its turn, in whatever order they come: %s',
    async order => {
      const { hand, run, pending, claimed } = await threeReasons()
      expect(claimed.map(job => job.payload).sort()).toEqual(['h', 'p', 'q'])
      for (const [n, name] of [...order].entries()) {
        expect(await pending()).toEqual({ state: 'waiting', pending: 3 - n })
        expect(await hand.settle([settling(run(name))])).toEqual([])
      }
      expect(await pending()).toEqual({ state: 'ready', pending: null })
      expect((await hand.claim(10)).map(job => job.payload)).toEqual(['x'])
    },
  )

  it('[W2] [S3] starts when all of them end in one settle', async () => {
    const { hand, claimed } = await threeReasons()
    expect(await hand.settle(claimed.map(settling))).toEqual([])
    expect((await hand.claim(10)).map(job => job.payload)).toEqual(['x'])
  })

  it('[W2] [S4] that can never run passes the turn: before it had it, and while it has it', async () => {
    const fail = async (isHeadFirst: boolean) => {
      const { producer, hand, run, x } = await threeReasons()
      const p = run('p')
      const failP = () =>
        hand.settleOthers([{ id: p.id, token: p.lease_token, outcome: 'failed', error: {} }])
      if (!isHeadFirst) await failP()
      await hand.settle([settling(run('h'))])
      if (isHeadFirst) await failP()
      expect(await producer.get(x)).toMatchObject({ state: 'dependency_failed' })
      const [next] = await hand.claim(10)
      expect(next?.payload).toBe('y')
      await hand.settle([run('q'), next as Claimed].map(settling))
    }
    await fail(false)
    await fail(true)
    expect(await workflows()).toEqual([])
  })

  it('[W2] [S4] that can never run halts the workflow where it is told to, whoever has the turn', async () => {
    const { producer, hand, run, x } = await threeReasons({ onWorkflowFailure: 'halt' })
    const p = run('p')
    await hand.settleOthers([{ id: p.id, token: p.lease_token, outcome: 'failed', error: {} }])
    expect(await producer.get(x)).toMatchObject({ state: 'dependency_failed' })
    expect(await workflows()).toEqual([{ key: 'w', is_halted: true }])
    await hand.settle([settling(run('h'))])
    expect(await hand.claim(10)).toEqual([])
    expect(await producer.resumeWorkflow('w')).toBe('resumed')
    expect((await hand.claim(10)).map(job => job.payload)).toEqual(['y'])
  })

  it('[W2] [S4] that is added when it can never run any more leaves the turn to the next', async () => {
    const { producer, group, hand, run, p, x, y } = await threeReasons()
    const failed = run('p')
    await hand.settleOthers([{ id: failed.id, token: failed.lease_token, outcome: 'failed', error: {} }])
    await producer.cancel(y)
    await hand.settle([settling(run('h'))])
    expect(await producer.get(x)).toMatchObject({ state: 'dependency_failed' })
    expect(await workflows()).toEqual([])
    const more = producer.addToGroup(group)
    more.add(step, 'doomed', { after: p, workflow: 'w' })
    more.add(step, 'fine', { workflow: 'w' })
    await more.submit()
    expect((await hand.claim(10)).map(job => job.payload)).toEqual(['fine'])
  })

  it('[W2] [S13] is cancelled with its group, and others of its workflow go on', async () => {
    const { producer, group, hand, run } = await threeReasons()
    await producer.enqueue(step, 'z', { workflow: 'w' })
    expect(await producer.cancelGroup(group)).toBe('cancelling')
    await hand.settle(['h', 'p', 'q'].map(name => settling(run(name))))
    expect((await hand.claim(10)).map(job => job.payload)).toEqual(['z'])
  })
})

describe('enqueueing into a workflow', () => {
  it('[W2] numbers calls that nobody waited for in their order, whatever their preparation takes', async () => {
    // One is checked by a schema that takes its time; the others need lanes of their own, or bring their own ids.
    const gates = [gate(), gate()]
    const slow = defineTask<string>({
      name: 'slow',
      payload: {
        '~standard': {
          version: 1,
          vendor: 'test',
          validate: async value => {
            await gates[Number(value)]?.opened
            return { value: value as string }
          },
        },
      },
    })
    const producer = deployment.producer({ tasks: [step, slow] })
    await producer.enqueue(step, 'elsewhere')
    const calls = [
      producer.enqueue(slow, '0', { workflow: 'w' }),
      producer.enqueue(slow, '1', { workflow: 'w' }),
      producer.enqueue(step, '2', { workflow: 'w', tag: 'new' }),
      producer.enqueue(step, '3', { workflow: 'w' }),
      producer.enqueue(step, '4', { workflow: 'w', id: newJobId() }),
      producer.enqueue(step, '5', { workflow: 'w' }),
      producer.enqueue(step, '6', { workflow: 'w', id: newJobId() }),
      producer.enqueue(step, '7', { workflow: 'w' }),
    ]
    // What another workflow waits for is no concern of this one.
    await producer.enqueue(step, 'elsewhere')
    gates[1]?.open()
    await producer.enqueue(step, 'elsewhere')
    gates[0]?.open()
    await Promise.all(calls)
    expect(await numbered()).toEqual(numbers(8))
  })

  it('[W2] goes on after a call that failed', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const calls = [
      producer.enqueue(step, '0', { workflow: 'w' }),
      producer.enqueue(step, 1n as never, { workflow: 'w' }),
      producer.enqueue(step, '1', { workflow: 'w' }),
      // Refused by Postgres, with all that travel along: they are sent one by one, and keep their order.
      producer.enqueue(step, 'no such key', { workflow: 'w', constraints: { nobody: 'declared' } }),
      producer.enqueue(step, '2', { workflow: 'w' }),
    ]
    const outcomes = await Promise.allSettled(calls)
    expect(outcomes.map(outcome => outcome.status)).toEqual(
      ['fulfilled', 'rejected', 'fulfilled', 'rejected', 'fulfilled'], // biome-ignore format: one line
    )
    expect(await numbered()).toEqual(numbers(3))
  })

  it('[W2] keeps the order of a list, also of one that takes several inserts', async () => {
    const producer = deployment.producer({ tasks: [step] })
    await producer.enqueueMany(step, numbers(1200), { workflow: 'w' })
    expect(await numbered()).toEqual(numbers(1200))
  })

  it('[W2] from many transactions at once numbers jobs in the order in which they got hold of the workflow', async () => {
    const producers = [1, 2, 3, 4].map(() => deployment.producer({ tasks: [step] }))
    const got: string[] = []
    const work = async (producer: (typeof producers)[number], no: number) => {
      const tx = await database.connect()
      for (let n = 0; n < 50; n++) {
        await tx.query('begin')
        await producer.enqueue(step, `${no} ${n}`, { workflow: 'w', tx })
        // The others cannot have it before the commit.
        got.push(`${no} ${n}`)
        if (n % 10 === 9) got.pop()
        await tx.query(n % 10 === 9 ? 'rollback' : 'commit')
      }
    }
    await Promise.all(producers.map(work))
    expect(got).toHaveLength(180)
    expect(await numbered()).toEqual(got)
  })

  it('[W2] [X1] waits for an open transaction that has enqueued into it; other workflows do not', async () => {
    const producer = deployment.producer({ tasks: [step] })
    await producer.enqueue(step, 'head', { workflow: 'w' })
    const tx = await database.connect()
    await tx.query('begin')
    await producer.enqueue(step, 'open', { workflow: 'w', tx })
    let isThere = false
    const late = producer.enqueue(step, 'late', { workflow: 'w' }).then(() => {
      isThere = true
    })
    await eventually('it waits', async () => {
      const [row] = await database.rows<{ n: number }>(
        "select count(*)::int as n from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
      )
      return row?.n === 1
    })
    // The same producer, after it.
    const other = await producer.enqueue(step, 'other', { workflow: 'v' })
    expect(await producer.get(other)).toMatchObject({ state: 'ready' })
    expect(isThere).toBe(false)
    await tx.query('commit')
    await late
    const rows = await database.rows<{ payload: string }>(
      `select j.payload from longshore.jobs j join longshore.workflows w on w.id = j.workflow and w.key = 'w'
       order by j.workflow_seq`,
    )
    expect(rows.map(row => row.payload)).toEqual(['head', 'open', 'late'])
  })

  it('[W2] [X1] that is rolled back leaves a gap, which stops nobody', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const tx = await database.connect()
    const undone = async () => {
      await tx.query('begin')
      await producer.enqueue(step, 'undone', { workflow: 'w', tx })
      await tx.query('rollback')
    }
    await undone()
    expect(await workflows()).toEqual([])
    await producer.enqueue(step, 'a', { workflow: 'w' })
    await undone()
    await producer.enqueue(step, 'b', { workflow: 'w' })
    const hand = await workByHand(database, ['step'])
    for (const payload of ['a', 'b']) {
      const claimed = await hand.claim(10)
      expect(claimed.map(job => job.payload)).toEqual([payload])
      await hand.settle(claimed.map(settling))
    }
    expect(await workflows()).toEqual([])
  })

  it('[W2] [X1] and cancelling the only other job of it in one transaction leaves it whole', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const hand = await workByHand(database, ['step'])
    const tx = await database.connect()
    for (const isCancelledFirst of [true, false]) {
      const head = await producer.enqueue(step, 'head', { workflow: 'w' })
      await tx.query('begin')
      if (isCancelledFirst) await producer.cancel(head, { tx })
      await producer.enqueue(step, 'next', { workflow: 'w', tx })
      if (!isCancelledFirst) await producer.cancel(head, { tx })
      await tx.query('commit')
      const claimed = await hand.claim(10)
      expect(claimed.map(job => job.payload)).toEqual(['next'])
      await hand.settle(claimed.map(settling))
    }
    expect(await workflows()).toEqual([])
  })

  it('[W2] twice with an id of your own changes nothing: while it waits, while it runs, and when it has ended', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const hand = await workByHand(database, ['step'])
    const [a, b] = [newJobId(), newJobId()]
    const both = async () =>
      Promise.all([
        producer.enqueue(step, 'a', { id: a, workflow: 'w' }),
        producer.enqueue(step, 'b', { id: b, workflow: 'w' }),
      ])
    expect(await both()).toMatchObject([{ isNew: true }, { isNew: true }])
    expect(await both()).toMatchObject([{ isNew: false }, { isNew: false }])
    for (const payload of ['a', 'b']) {
      const claimed = await hand.claim(10)
      expect(claimed.map(job => job.payload)).toEqual([payload])
      expect(await both()).toMatchObject([{ isNew: false }, { isNew: false }])
      await hand.settle(claimed.map(settling))
      expect(await both()).toMatchObject([{ isNew: false }, { isNew: false }])
    }
    expect(await hand.claim(10)).toEqual([])
    expect(await workflows()).toEqual([])
    expect(await database.rows('select from longshore.finished_jobs')).toHaveLength(2)
  })

  it('[W2] [X1] works from plain SQL, which refuses what it does not know', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const hand = await workByHand(database, ['step'])
    const enqueue = (payload: string, options: object) =>
      database.rows('select longshore.enqueue($1, $2, $3)', ['step', JSON.stringify(payload), options])
    const id = newJobId()
    await enqueue('a', { workflow: 'w', onWorkflowFailure: 'halt' })
    await enqueue('b', { workflow: 'w', onWorkflowFailure: 'continue', id })
    await enqueue('b', { workflow: 'w', id })
    await producer.enqueue(step, 'c', { workflow: 'w' })
    expect(await numbered()).toEqual(['a', 'b', 'c'])
    const [a] = await hand.claim(10)
    expect(a?.payload).toBe('a')
    await hand.settleOthers([{ id: a?.id, token: a?.lease_token, outcome: 'failed', error: {} }])
    expect(await hand.claim(10)).toEqual([])
    expect(await database.rows("select longshore.resume_workflow('w') as was_halted")).toEqual([
      { was_halted: true },
    ])
    expect((await hand.claim(10)).map(job => job.payload)).toEqual(['b'])
    const refused: [object, string][] = [
      [{ workflow: '' }, 'workflow must be a text of 1 to 200 characters'],
      [{ workflow: 'x'.repeat(201) }, 'workflow must be a text of 1 to 200 characters'],
      [{ workflow: 7 }, 'workflow must be a text'],
      [{ workflow: 'w', onWorkflowFailure: 'stop' }, 'onWorkflowFailure is "continue" or "halt"'],
      [{ onWorkflowFailure: 'halt' }, 'is for a job with a workflow'],
    ]
    for (const [options, problem] of refused) await expect(enqueue('x', options)).rejects.toThrow(problem)
  })

  it('[W2] refuses options that make no sense', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const refused: [object, string][] = [
      [{ workflow: '' }, 'workflow'],
      [{ workflow: 'x'.repeat(201) }, 'workflow'],
      [{ workflow: 'a\nb' }, 'workflow'],
      [{ workflow: null }, 'workflow'],
      [{ workflow: 'w', onWorkflowFailure: 'stop' }, 'onWorkflowFailure'],
      [{ onWorkflowFailure: 'halt' }, 'onWorkflowFailure is for a job with a workflow'],
    ]
    for (const [options, problem] of refused) {
      await expect(producer.enqueue(step, 'x', options)).rejects.toThrow(problem)
      await expect(producer.enqueueMany(step, ['x'], options)).rejects.toThrow(problem)
      expect(() => producer.group().add(step, 'x', options)).toThrow(problem)
    }
    await expect(producer.resumeWorkflow('')).rejects.toThrow('workflow')
    const keys = ['__proto__', '𝕨', "'; drop", 'x'.repeat(200)]
    for (const workflow of keys) await producer.enqueueMany(step, ['1', '2'], { workflow })
    expect((await workflows()).map(({ key }) => key).sort()).toEqual(keys.sort())
  })

  it('[W2] outside a transaction is tried again when it and another wait for each other', async () => {
    const producer = deployment.producer({ tasks: [step] })
    await database.rows(`
      create sequence deadlocks;
      create function refuse() returns trigger language plpgsql as $$
      begin
        if nextval('public.deadlocks') = 1 then raise 'deadlock detected' using errcode = '40P01'; end if;
        return new;
      end $$;
      create trigger refuse before insert on longshore.workflows for each row execute function refuse()`)
    await Promise.all(
      ['b', 'a', 'b'].map((key, n) => producer.enqueue(step, `${key}${n}`, { workflow: key })),
    )
    await database.rows('drop trigger refuse on longshore.workflows')
    expect((await workflows()).map(({ key }) => key)).toEqual(['a', 'b'])
    expect((await numbered()).sort()).toEqual(['a1', 'b0', 'b2'])
  })

  it('[W2] [X1] in two transactions that take two workflows in opposite order fails for one of them', async () => {
    const producer = deployment.producer({ tasks: [step] })
    await producer.enqueue(step, 'elsewhere')
    const [one, two] = [await database.connect(), await database.connect()]
    await one.query("set deadlock_timeout = '1min'")
    await two.query("set deadlock_timeout = '20ms'")
    for (const tx of [one, two]) await tx.query('begin')
    await producer.enqueue(step, '1', { workflow: 'b', tx: one })
    await producer.enqueue(step, '2', { workflow: 'a', tx: two })
    const first = producer.enqueue(step, '1', { workflow: 'a', tx: one })
    await waitsForLock(database, one)
    await expect(producer.enqueue(step, '2', { workflow: 'b', tx: two })).rejects.toMatchObject({
      code: '40P01',
    })
    await two.query('rollback')
    await first
    await one.query('commit')
    expect((await workflows()).map(({ key }) => key)).toEqual(['a', 'b'])
  })
})
