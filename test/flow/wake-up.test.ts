import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { counter, eventually, gate } from '../support/signals.ts'
import { weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const task = defineTask({ name: 'wake', retry: { backoff: { type: 'fixed', delay: 30 } } })
/** With the fall-back an hour away only a wake-up can start a job within the time of a test. */
const NEVER = 3_600_000

const isListening = async () =>
  (await database.rows<{ listening: boolean }>('select listening from longshore.workers')).every(
    row => row.listening,
  )

describe('an idle worker', () => {
  it('[W5] is woken by an enqueue, a transaction that commits, plain SQL, a due job and a retry', async () => {
    const producer = deployment.producer()
    const done = counter()
    await deployment.worker({
      pollInterval: NEVER,
      handlers: [
        task.handle(job => {
          done.add()
          if (job.payload === 'fail once' && job.attempt === 1) throw new Error('once')
        }),
      ],
    })
    const idle = () => eventually('the worker listens', isListening)
    await idle()
    await producer.enqueue(task, 1)
    await done.reached(1)

    await idle()
    const tx = await database.connect()
    await tx.query('begin')
    await producer.enqueue(task, 1, { tx })
    await tx.query('commit')
    await done.reached(2)

    await idle()
    await database.rows("select longshore.enqueue('wake')")
    await done.reached(3)

    await idle()
    await producer.enqueue(task, 1, { delay: 50 })
    await done.reached(4)
    await producer.enqueue(task, 1, { delay: 600 })
    await done.reached(5)

    await idle()
    await producer.enqueue(task, 'fail once')
    await done.reached(7)
  })

  it('[W5] looks on while a transaction is open that did not see it listen, and finds the job when it commits', async () => {
    const producer = deployment.producer()
    const tx = await database.connect()
    await tx.query('begin')
    await producer.enqueue(task, 1, { tx })
    await database.rows('create table journal.looks (at timestamptz not null)')
    const noteLooks = {
      name: 'claim',
      point: 'start',
      insertion: 'insert into journal.looks values (clock_timestamp());',
    }
    await weakened(database, [noteLooks], async () => {
      const done = counter()
      await deployment.worker({ pollInterval: NEVER, handlers: [task.handle(() => done.add())] })
      await eventually('the worker listens', isListening)
      const since = await database.rows('select clock_timestamp()::text as at')
      // At once, after 25 ms, and then only because of the transaction.
      await eventually(
        'it has looked four times',
        async () =>
          (await database.rows('select from journal.looks where at > $1', [since[0]?.at])).length >= 4,
      )
      await tx.query('commit')
      await done.reached(1)
    })
  })

  it('[W5] starts the next job as soon as its only permit is free', async () => {
    const producer = deployment.producer()
    const started = counter()
    const gates = [gate(), gate(), gate()]
    await deployment.worker({
      pollInterval: NEVER,
      maxConcurrentTasks: 1,
      handlers: [
        task.handle(async job => {
          started.add()
          await gates[job.payload as number]?.opened
        }),
      ],
    })
    for (const n of [0, 1, 2]) await producer.enqueue(task, n)
    for (const n of [0, 1, 2]) {
      await started.reached(n + 1)
      expect(started.count).toBe(n + 1)
      gates[n]?.open()
    }
  })

  it('[S6] rings at most one of many for one job, and passes over those without a free permit', async () => {
    const producer = deployment.producer()
    const mayEnd = gate()
    const inside = counter()
    const done = counter()
    const busy = await deployment.worker({
      pollInterval: NEVER,
      maxConcurrentTasks: 1,
      handlers: [
        task.handle(async () => {
          inside.add()
          await mayEnd.opened
          done.add()
        }),
      ],
    })
    await eventually('it listens', isListening)
    await producer.enqueue(task, 'long')
    await inside.reached(1)
    await eventually('the busy worker does not listen', async () => !(await isListening()))
    const others = await Promise.all(
      [1, 2, 3, 4].map(() =>
        deployment.worker({ pollInterval: NEVER, handlers: [task.handle(() => done.add())] }),
      ),
    )
    expect(others).toHaveLength(4)
    await eventually('four listen', async () => {
      const rows = await database.rows('select from longshore.workers where listening')
      return rows.length === 4
    })

    // Bells are counted on the channels of all workers, on a connection of its own.
    const rings: string[] = []
    const ears = await database.connect()
    ears.on('notification', message => rings.push(message.channel))
    const workers = await database.rows<{ id: number }>('select id from longshore.workers')
    for (const { id } of workers) await ears.query(`listen """longshore"".worker_${id}"`)
    for (let n = 1; n <= 5; n++) {
      await producer.enqueue(task, n)
      await done.reached(n)
    }
    await ears.query('select 1')
    expect(rings.length).toBe(5)
    mayEnd.open()
    await done.reached(6)
    await busy.stop()
  })

  it('[S10] is woken again after its connections were cut, and finds what came meanwhile', async () => {
    const producer = deployment.producer()
    const done = counter()
    await deployment.worker({ pollInterval: NEVER, handlers: [task.handle(() => done.add())] })
    await eventually('it listens', isListening)
    for (let n = 1; n <= 3; n++) {
      await database.rows(
        `select pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and application_name = 'longshore'`,
      )
      await producer.enqueue(task, n)
      await done.reached(n)
    }
  })

  it('is not rung any more once its beat has stopped', async () => {
    const producer = deployment.producer()
    await producer.enqueue(task, 0)
    await database.rows(
      `insert into longshore.workers (name, queues, tasks, tags, constraint_tags, listening, expires_at)
       values ('dead', '{default}', '{wake}', '{default}', '{c:}', true, now() - interval '1 minute')`,
    )
    const [dead] = await database.rows<{ id: number }>('select id from longshore.workers')
    let rings = 0
    const ears = await database.connect()
    ears.on('notification', () => rings++)
    await ears.query(`listen """longshore"".worker_${dead?.id}"`)
    await producer.enqueue(task, 1)
    await ears.query('select 1')
    expect(rings).toBe(0)
    expect(await producer.get((await producer.enqueue(task, 2)).id)).toMatchObject({ hasWorker: false })
  })

  it('[X10] is told the best score of what it is rung for, so that it looks there', async () => {
    const producer = deployment.producer()
    const { id, claim, settleOthers } = await workByHand(database, ['wake'])
    await database.rows('update longshore.workers set listening = true')
    const told: string[] = []
    const ears = await database.connect()
    ears.on('notification', message => told.push(message.payload ?? ''))
    await ears.query(`listen """longshore"".worker_${id}"`)
    const best = async () => {
      await ears.query('select 1')
      const [row] = await database.rows<{ score: string }>(
        "select min(score)::text as score from longshore.jobs where state = 'ready'",
      )
      expect(told.splice(0)).toEqual([row?.score])
    }
    await producer.enqueue(task, 'plain')
    await best()
    await producer.enqueueMany(task, [1, 2], { each: (_, index) => ({ priority: index + 1 }) })
    await best()
    await producer.enqueue(task, 'chosen', { id: '018f0000-0000-7000-8000-000000000000', priority: 3 })
    await best()
    const [run] = await claim(1)
    if (!run) throw new Error('nothing was claimed')
    await settleOthers([
      { id: run.id, token: run.lease_token, outcome: 'released', error: {}, delayMs: null },
    ])
    await best()
  })

  it('[S6] is rung only for what it can run, by as many jobs as there are, and not for what is not due', async () => {
    const producer = deployment.producer()
    const listen = async (queue: string, name: string, tag: string) => {
      const [row] = await database.rows<{ id: number }>(
        `insert into longshore.workers (name, queues, tasks, tags, constraint_tags, listening)
         values ('ears', array[$1], array[$2], array[$3], '{c:}', true) returning id`,
        [queue, name, tag],
      )
      return `"longshore".worker_${row?.id}`
    }
    const mine = [await listen('default', 'wake', 'default'), await listen('default', 'wake', 'default')]
    const others = [
      await listen('other', 'wake', 'default'),
      await listen('default', 'other', 'default'),
      await listen('default', 'wake', 'other'),
    ]
    const rings: string[] = []
    const ears = await database.connect()
    ears.on('notification', message => rings.push(message.channel))
    for (const channel of [...mine, ...others]) await ears.query(`listen ${ears.escapeIdentifier(channel)}`)

    await producer.enqueue(task, 1, { delay: '1h' })
    await ears.query('select 1')
    expect(rings).toEqual([])
    await producer.enqueueMany(task, [1, 2, 3])
    await ears.query('select 1')
    expect(rings.splice(0).sort()).toEqual([...mine].sort())
    // Different kinds that share an insert: each rings its own.
    await Promise.all([producer.enqueue(task, 1), producer.enqueue(task, 1, { tag: 'other' })])
    await ears.query('select 1')
    expect(rings.length).toBe(2)
    expect(rings.splice(0)).toContain(others[2])
    // Given back by one worker, it is offered to another.
    const hand = await workByHand(database, ['wake'])
    const [job] = await hand.claim(1)
    await hand.settleOthers([{ id: job?.id, token: job?.lease_token, outcome: 'released' }])
    const [again] = await hand.claim(1)
    await hand.settleOthers([{ id: again?.id, token: again?.lease_token, outcome: 'retry', delayMs: 0 }])
    await ears.query('select 1')
    expect(rings.filter(channel => mine.includes(channel))).toHaveLength(2)
  })
})
