import { beforeAll, describe, expect, it } from 'vitest'
import { defineTask, type JobContext, type Queryable } from '../../src/index.ts'
import { workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { startProxy } from '../support/proxy.ts'
import { counter, eventually, gate } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const task = defineTask<number>({
  name: 'task',
  concurrency: 5,
  retry: { maxAttempts: 2, backoff: { type: 'fixed', delay: 0 } },
})
const wide = defineTask<number>({ name: 'wide' })

beforeAll(async () => {
  await database.rows('create table effects (job uuid, note text)')
})

const note = (tx: Queryable, job: string, text: string) =>
  tx.query('insert into effects values ($1, $2)', [job, text])
const notesOf = async (job: string) =>
  (await database.rows<{ note: string }>('select note from effects where job = $1', [job])).map(
    row => row.note,
  )

/** Run one job with this handler; resolves when it has ended. */
async function run(
  work: (job: { id: string; attempt: number }, ctx: JobContext) => unknown,
  postgres = database.urlOf('worker'),
) {
  const producer = deployment.producer({ tasks: [task] })
  await deployment.worker({ postgres, handlers: [task.handle((job, ctx) => work(job, ctx))] })
  const ref = await producer.enqueue(task, 1)
  const ended = await producer.waitFor(ref)
  return { producer, ref, ended, notes: await notesOf(ref.id) }
}

describe('ctx.complete', () => {
  it('[X4] commits the writes and the completion together, with what it returns as the result', async () => {
    const { ended, notes } = await run(async (job, ctx) => {
      const value = await ctx.complete(async tx => {
        await note(tx, job.id, 'written')
        const { rows } = await database
          .rows('select state from longshore.jobs where id = $1', [job.id])
          .then(rows => ({ rows }))
        expect(rows).toEqual([{ state: 'running' }])
        return { total: 3 }
      })
      expect(value).toEqual({ total: 3 })
      return 'not looked at'
    })
    expect(ended).toMatchObject({ state: 'succeeded', result: { total: 3 }, attempts: 1 })
    expect(notes).toEqual(['written'])
    expect(await database.rows('select sum(used)::int as used from longshore.slot_groups')).toEqual([
      { used: 0 },
    ])
  })

  it('[X4] writes nothing when the work fails; the next attempt can complete', async () => {
    const { ended, notes } = await run((job, ctx) =>
      ctx.complete(async tx => {
        await note(tx, job.id, `attempt ${job.attempt}`)
        if (job.attempt === 1) throw new Error('not yet')
      }),
    )
    expect(ended).toMatchObject({ state: 'succeeded', result: null, attempts: 2 })
    expect(notes).toEqual(['attempt 2'])
  })

  it('[X4] a handler that catches the failure may complete again, but not twice', async () => {
    const refused = gate<string>()
    const { ended, notes } = await run(async (job, ctx) => {
      await ctx
        .complete(async tx => {
          await note(tx, job.id, 'first')
          throw new Error('no')
        })
        .catch(() => undefined)
      await ctx.complete(tx => note(tx, job.id, 'second').then(() => null))
      await ctx.complete(tx => note(tx, job.id, 'third')).catch(error => refused.open(error.code))
    })
    expect(ended).toMatchObject({ state: 'succeeded', attempts: 1 })
    expect(notes).toEqual(['second'])
    // The job has ended by then, but its handler goes on.
    expect(await refused.opened).toBe('COMPLETED_TWICE')
  })

  it('[X4] stays completed when the handler fails afterwards, or does not wait for it', async () => {
    const thrown = await run(async (job, ctx) => {
      await ctx.complete(tx => note(tx, job.id, 'kept').then(() => 1))
      throw new Error('afterwards')
    })
    expect(thrown).toMatchObject({ ended: { state: 'succeeded', result: 1, attempts: 1 }, notes: ['kept'] })
  })

  it('[X4] has not completed when a statement that nobody waited for fails before the commit', async () => {
    const { ended, notes } = await run(async (job, ctx) =>
      ctx.complete(async tx => {
        await note(tx, job.id, `attempt ${job.attempt}`)
        if (job.attempt > 1) return
        // The second one comes behind the completion, and before the commit.
        const first = tx.query('select 1')
        first.then(() => tx.query('select 1 / 0')).catch(() => undefined)
      }),
    )
    expect(ended).toMatchObject({ state: 'succeeded', attempts: 2 })
    expect(notes).toEqual(['attempt 2'])
  })

  it('[X4] lends its client to nobody who comes after it: that may be in the transaction of another run', async () => {
    const kept: Queryable[] = []
    const { ended, ref } = await run((job, ctx) =>
      ctx.complete(async tx => {
        kept.push(tx)
        await note(tx, job.id, 'in time')
        if (job.attempt === 1) throw new Error('once more')
      }),
    )
    expect(ended).toMatchObject({ state: 'succeeded', attempts: 2 })
    for (const tx of kept) await expect(note(tx, ref.id, 'late')).rejects.toThrow('has ended')
    expect(await notesOf(ref.id)).toEqual(['in time'])
  })

  it('[X4] is waited for by a handler that returns without waiting', async () => {
    const unawaited = await run((job, ctx) => {
      ctx.complete(tx => note(tx, job.id, 'kept').then(() => 2)).catch(() => undefined)
    })
    expect(unawaited).toMatchObject({ ended: { state: 'succeeded', result: 2 }, notes: ['kept'] })
  })

  it('[X4] refuses a result that cannot be stored, and writes nothing', async () => {
    const { ended, notes } = await run((job, ctx) =>
      ctx.complete(tx => note(tx, job.id, 'lost').then(() => Number.NaN)),
    )
    expect(ended).toMatchObject({ state: 'failed', error: { code: 'RESULT_REFUSED' }, attempts: 1 })
    expect(notes).toEqual([])
  })

  it('[X4] [S13] rolls back when the job was cancelled meanwhile', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const [begun, mayGo, code] = [gate(), gate(), gate<unknown>()]
    await deployment.worker({
      abortGrace: '20s',
      handlers: [
        task.handle((job, ctx) =>
          ctx
            .complete(async tx => {
              await note(tx, job.id, 'lost')
              begun.open()
              await mayGo.opened
            })
            .catch(error => {
              code.open(error.code)
              throw error
            }),
        ),
      ],
    })
    const ref = await producer.enqueue(task, 1)
    await begun.opened
    expect(await producer.cancel(ref)).toBe('cancelling')
    mayGo.open()
    expect(await code.opened).toBe('JOB_CANCELLED')
    expect(await producer.waitFor(ref)).toMatchObject({ state: 'cancelled' })
    expect(await notesOf(ref.id)).toEqual([])
  })

  it('[X4] rolls back when the lease was lost meanwhile, and the job runs elsewhere', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const [begun, mayGo, code] = [gate(), gate(), gate<unknown>()]
    let first = true
    const worker = await deployment.worker({
      handlers: [
        task.handle(async (job, ctx) => {
          if (!first) return 'elsewhere'
          first = false
          return ctx
            .complete(async tx => {
              await note(tx, job.id, 'lost')
              begun.open()
              await mayGo.opened
            })
            .catch(error => {
              code.open(error.code)
              throw error
            })
        }),
      ],
    })
    const { id } = await worker.start()
    const ref = await producer.enqueue(task, 1)
    await begun.opened
    // In one transaction, so that no beat comes between.
    await database.rows(
      `update longshore.workers set expires_at = now() - interval '1 second' where id = ${id};
       select longshore.rescue(3600000, 100)`,
    )
    mayGo.open()
    expect(await code.opened).toBe('LEASE_LOST')
    expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded', result: 'elsewhere' })
    expect(await notesOf(ref.id)).toEqual([])
  })

  it('[X4] waits for a Postgres that is away for a moment before its work has begun, without using an attempt', async () => {
    const proxy = await startProxy(database.urlOf('worker'))
    try {
      let begun = 0
      const { ended, notes } = await run(async (job, ctx) => {
        // A port where nothing listens.
        proxy.leadTo('postgres://127.0.0.1:1/none')
        const { dials } = proxy
        const completed = ctx.complete(async tx => {
          begun++
          await note(tx, job.id, 'written')
        })
        await eventually('it has tried again', async () => proxy.dials >= dials + 5)
        proxy.leadTo(database.urlOf('worker'))
        await completed
      }, proxy.url)
      expect(ended).toMatchObject({ state: 'succeeded', attempts: 1 })
      expect(notes).toEqual(['written'])
      expect(begun).toBe(1)
    } finally {
      await proxy.close()
    }
  })

  it.each([
    ['reply', true],
    ['request', false],
  ] as const)('[X4] is both or neither when the %s of the commit is lost', async (what, isWritten) => {
    const proxy = await startProxy(database.urlOf('worker'))
    try {
      const { ended, notes } = await run((job, ctx) => {
        if (job.attempt === 2) return 'second attempt'
        return ctx.complete(async tx => {
          await note(tx, job.id, 'written')
          if (what === 'reply') proxy.loseReplyTo('commit', 'insert into effects')
          else proxy.loseRequest('commit', 'insert into effects')
          return 'completed'
        })
      }, proxy.url)
      expect(ended).toMatchObject(
        isWritten
          ? { state: 'succeeded', result: 'completed', attempts: 1 }
          : { state: 'succeeded', result: 'second attempt', attempts: 2 },
      )
      expect(notes).toEqual(isWritten ? ['written'] : [])
    } finally {
      await proxy.close()
    }
  })

  it.each(['commit', 'rollback', 'commit; begin', 'rollback; begin'])(
    '[X4] fails the job, without another attempt, when the work ends the transaction by %s',
    async how => {
      const { ended } = await run((_, ctx) => ctx.complete(tx => tx.query(how).then(() => null)))
      expect(ended).toMatchObject({ state: 'failed', error: { code: 'TRANSACTION_ENDED' }, attempts: 1 })
    },
  )

  it('[X4] waits for slots that somebody holds for a moment: no attempt is lost to crowding', async () => {
    const other = await database.connect()
    const { ended } = await run((_, ctx) =>
      ctx.complete(async () => {
        await other.query('begin; select from longshore.slot_groups for update')
        // Let go when the completion waits for it.
        eventually('it waits', async () => {
          const waiting = 'select from pg_stat_activity where $1 = any (pg_blocking_pids(pid))'
          return (await database.rows(waiting, [other.backendPid])).length > 0
        }).then(() => other.query('commit'))
        return 1
      }),
    )
    expect(ended).toMatchObject({ state: 'succeeded', result: 1, attempts: 1 })
  })

  it('[X4] a process that is paused before its commit does not hold others up for long', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const ref = await producer.enqueue(task, 1)
    const worker = await workByHand(database, ['task'])
    const [job] = await worker.claim(1)
    const client = await database.connect()
    await client.query('begin')
    await client.query("select set_config('longshore_run.lease', $1, true)", [job?.lease_token])
    const complete = 'select longshore.complete($1, $2, $3, null) as answer'
    const { rows } = await client.query(complete, [worker.id, ref.id, job?.lease_token])
    expect(rows).toEqual([{ answer: 'completed' }])
    const limit = await client.query('show idle_in_transaction_session_timeout')
    expect(limit.rows).toEqual([{ idle_in_transaction_session_timeout: '10s' }])
    await client.query('commit')
  })

  it('[X4] more completions than connections are told when the life ends, and all permits come back', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const [mayGo, allTold, allAgain] = [gate(), counter(), counter()]
    const begun = counter()
    let isFirstLife = true
    const worker = await deployment.worker({
      maxConcurrentTasks: 9,
      handlers: [
        wide.handle(async (_, ctx) => {
          begun.add()
          if (!isFirstLife) {
            allAgain.add()
            return allAgain.reached(9)
          }
          await ctx.complete(() => mayGo.opened).finally(() => allTold.add())
        }),
      ],
    })
    const { id } = await worker.start()
    await producer.enqueueMany(wide, Array(8).fill(1))
    await begun.reached(8)
    isFirstLife = false
    // In one transaction, so that no beat comes between.
    await database.rows(
      `update longshore.workers set expires_at = now() - interval '1 second' where id = ${id};
       select longshore.rescue(3600000, 100)`,
    )
    await allTold.reached(3)
    mayGo.open()
    await allTold.reached(8)
    await producer.enqueue(wide, 1)
    await allAgain.reached(9)
  })
})
