import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { waitsForLock } from '../support/locks.ts'
import { counter, eventually, gate } from '../support/signals.ts'
import { type Weakness, weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const one = defineTask({ name: 'one' })
const two = defineTask({ name: 'two' })

/** A mixed backlog over two tasks: priorities and run times with many ties. */
async function mixedBacklog(size: number) {
  const producer = deployment.producer()
  for (let at = 0; at < size; at += 50) {
    const priority = (at / 50) % 4
    const runAt = new Date(1_700_000_000_000 + ((at / 50) % 3))
    const task = (at / 50) % 5 < 2 ? one : two
    await producer.enqueueMany(
      task,
      Array.from({ length: 50 }, (_, n) => at + n),
      { priority, runAt },
    )
  }
  const rows = await database.rows<{ id: string }>('select id from longshore.jobs order by score, id')
  return rows.map(row => row.id)
}

describe('claim', () => {
  it.each([[['one', 'two']], [['one']]])(
    '[C7] hands out %j in order: priority, run time, submission',
    async tasks => {
      const all = await mixedBacklog(2000)
      const mine = await database.rows<{ id: string }>(
        'select j.id from longshore.jobs j join longshore.lanes l on l.id = j.lane where l.task = any ($1)',
        [tasks],
      )
      const mineIds = new Set(mine.map(row => row.id))
      const worker = await workByHand(database, tasks)
      const claimed: string[] = []
      for (;;) {
        const rows = await worker.claim(37)
        if (rows.length === 0) break
        claimed.push(...rows.map(row => row.id))
      }
      expect(claimed).toEqual(all.filter(id => mineIds.has(id)))
    },
  )

  it.each([[['one', 'two']], [['one']]])(
    '[C8] passes over what an open claim of %j holds, and waits for nobody',
    async tasks => {
      const order = await mixedBacklog(500)
      const worker = await workByHand(database, tasks)
      const other = await workByHand(database, tasks)
      const tx = await database.connect()
      await tx.query('begin')
      const first = await worker.claim(40, tx)
      const second = await other.claim(40)
      await tx.query('rollback')
      const firstIds = first.map(row => row.id)
      const secondIds = second.map(row => row.id)
      expect(new Set([...firstIds, ...secondIds]).size).toBe(80)
      if (tasks.length === 2) {
        expect(firstIds).toEqual(order.slice(0, 40))
        expect(secondIds).toEqual(order.slice(40, 80))
      }
      // The claim that was rolled back left nothing behind.
      const third = await worker.claim(40)
      expect(third.map(row => row.id)).toEqual(firstIds)
    },
  )

  /**
   * Of eight jobs that stand in two lanes by turns, the first two are held. A claim of four has the next two and reads the rest of
   * its page; while it does, the fifth goes to another worker and the sixth into another lane. Resolves to what it brings.
   */
  const claimFromStalePage = async (weaknesses: Weakness[]) => {
    const producer = deployment.producer()
    const ids: string[] = []
    for (let n = 0; n < 8; n++) ids.push((await producer.enqueue(n % 2 === 0 ? one : two, n)).id)
    const [worker, other] = [
      await workByHand(database, ['one', 'two']),
      await workByHand(database, ['one', 'two']),
    ]
    const [holding, claiming, barrier] = [
      await database.connect(),
      await database.connect(),
      await database.connect(),
    ]
    // In the middle of a statement that has its snapshot: from here on only what it looks at again can save it.
    const pause = "and (v_reach = 4 or pg_advisory_xact_lock_shared(4712)::text = '')"
    return weakened(
      database,
      [{ name: 'claim', point: 'locking', insertion: pause }, ...weaknesses],
      async () => {
        await holding.query('begin')
        await holding.query('select from longshore.jobs where id = any ($1) for update', [ids.slice(0, 2)])
        await barrier.query('select pg_advisory_lock(4712)')
        const claimed = worker.claim(4, claiming)
        await waitsForLock(database, claiming)
        await database.rows(
          'select longshore.claim($1, 1, array[id], array[lane]) from longshore.jobs where id = $2',
          [other.id, ids[4]],
        )
        await producer.change(ids[5] as string, { constraints: { gpu: 'a100' } })
        await barrier.query('select pg_advisory_unlock(4712)')
        const payloads = (await claimed).map(job => job.payload)
        await holding.query('rollback')
        await database.rows('delete from longshore.jobs')
        return payloads
      },
    )
  }

  it('[C8] [D9] looks again at what a page says that others have overtaken', async () => {
    deployment.skipAudit('guards are taken out, and jobs are removed by hand')
    expect(await claimFromStalePage([])).toEqual([2, 3, 6, 7])
    // A row that was overtaken is not at its place any more. Looked up by ids, only the second look at state and lane is left.
    const byIds: Weakness = {
      name: 'claim',
      guard: 'same-place',
      replacement: 'j.id = any (array(select o.id from longshore.jobs o where o.ctid = any (v_found)))',
    }
    const without = (guard: string): Weakness => ({ name: 'claim', guard })
    expect(await claimFromStalePage([byIds])).toEqual([2, 3, 6, 7])
    expect(await claimFromStalePage([byIds, without('found-still-ready')])).toEqual([2, 3, 4, 6])
    expect(await claimFromStalePage([byIds, without('own-lane')])).toEqual([2, 3, 5, 6])
  })

  it('hands a job over with a new lease token and one attempt more, and never the same token twice', async () => {
    const producer = deployment.producer()
    const ref = await producer.enqueue(one, 1)
    const worker = await workByHand(database, ['one'])
    const [first] = await worker.claim(1)
    expect(first).toMatchObject({ id: ref.id, attempts: 1, payload: 1 })
    await worker.settleOthers([{ id: first?.id, token: first?.lease_token, outcome: 'retry', delayMs: 0 }])
    const [second] = await worker.claim(1)
    expect(second).toMatchObject({ id: ref.id, attempts: 2 })
    expect(BigInt(second?.lease_token ?? 0)).toBeGreaterThan(BigInt(first?.lease_token ?? 0))
  })

  it('hands nothing to a worker that is not registered, and nothing of other tags, tasks or queues', async () => {
    const producer = deployment.producer()
    await producer.enqueue(one, 1)
    await producer.enqueue(one, 1, { tag: 'gpu' })
    await producer.enqueue(one, 1, { queue: 'slow' })
    await producer.enqueue(two, 1)
    expect(await database.rows('select ids, wait from longshore.claim(0, 10)')).toEqual([
      { ids: null, wait: 'dead' },
    ])
    const worker = await workByHand(database, ['one'], ['gpu'])
    expect(await worker.claim(10)).toHaveLength(1)
    const plain = await workByHand(database, ['one'])
    expect(await plain.claim(10)).toHaveLength(1)
    const [row] = await database.rows<{ id: number }>(
      `insert into longshore.workers (name, queues, tasks, tags, constraint_tags)
       values ('idle', '{default}', '{three}', '{default,gpu}', '{c:}') returning id`,
    )
    expect(await database.rows('select ids, wait from longshore.claim($1, 10)', [row?.id])).toEqual([
      { ids: null, wait: null },
    ])
  })
})

describe('a worker', () => {
  it('[C8] runs each job once, whoever else claims: 3 workers, 3,000 jobs, no duplicates', async () => {
    const producer = deployment.producer()
    const ran = new Map<number, number>()
    const done = counter()
    const handler = one.handle(job => {
      const n = job.payload as number
      ran.set(n, (ran.get(n) ?? 0) + 1)
      done.add()
    })
    await Promise.all([1, 2, 3].map(() => deployment.worker({ handlers: [handler] })))
    const payloads = Array.from({ length: 3000 }, (_, n) => n)
    await Promise.all([
      producer.enqueueMany(one, payloads.slice(0, 1500)),
      ...payloads.slice(1500).map(n => producer.enqueue(one, n)),
    ])
    await done.reached(3000)
    await eventually(
      'all jobs are settled',
      async () => (await database.rows('select from longshore.jobs')).length === 0,
    )
    expect(ran.size).toBe(3000)
    expect([...ran.values()].every(count => count === 1)).toBe(true)
  })

  it('[W3] never runs more than maxConcurrentTasks handlers at once', async () => {
    const producer = deployment.producer()
    let inside = 0
    let most = 0
    const done = counter()
    await deployment.worker({
      maxConcurrentTasks: 7,
      handlers: [
        one.handle(async () => {
          most = Math.max(most, ++inside)
          await new Promise(resolve => setImmediate(resolve))
          inside--
          done.add()
        }),
      ],
    })
    await producer.enqueueMany(
      one,
      Array.from({ length: 500 }, (_, n) => n),
    )
    await done.reached(500)
    expect(most).toBe(7)
  })

  it('[W1] holds a thousand waiting jobs at once', async () => {
    const producer = deployment.producer()
    const inside = counter()
    const mayEnd = gate()
    await deployment.worker({
      handlers: [
        one.handle(async () => {
          inside.add()
          await mayEnd.opened
        }),
      ],
    })
    const refs = await producer.enqueueMany(
      one,
      Array.from({ length: 1000 }, (_, n) => n),
    )
    await inside.reached(1000)
    mayEnd.open()
    await Promise.all(refs.slice(-10).map(ref => producer.waitFor(ref)))
  })

  it('[W8] [W5] that is nearly full takes a lone job at once, and one of many when it has waited for more to end', async () => {
    const producer = deployment.producer()
    const inside = counter()
    const mayEnd = [gate(), gate()]
    await deployment.worker({
      maxConcurrentTasks: 20,
      pollInterval: 3_600_000,
      handlers: [
        one.handle(async job => {
          inside.add()
          await mayEnd[job.payload as number]?.opened
        }),
      ],
    })
    await producer.enqueueMany(one, new Array(19).fill(0))
    await inside.reached(19)
    await producer.enqueue(one, 1)
    await inside.reached(20)
    // One permit becomes free, and stays the only one: less than the 20 % that it would rather wait for.
    await producer.enqueueMany(one, new Array(5).fill(0))
    mayEnd[1]?.open()
    await inside.reached(21)
    mayEnd[0]?.open()
    await inside.reached(25)
  })

  it('[W4] claims at most claimBatchSize while nothing ends, and more under a backlog of jobs that do', async () => {
    const producer = deployment.producer()
    await producer.enqueueMany(
      one,
      Array.from({ length: 2000 }, (_, n) => n),
    )
    const inside = counter()
    const mayEnd = gate()
    await deployment.worker({
      claimBatchSize: 10,
      maxConcurrentTasks: 300,
      handlers: [
        one.handle(async () => {
          inside.add()
          await mayEnd.opened
        }),
      ],
    })
    const claims = async () => {
      const sizes = new Map<number, number>()
      for (const { token } of await deployment.runs()) sizes.set(token, (sizes.get(token) ?? 0) + 1)
      return [...sizes.values()]
    }
    await inside.reached(200)
    expect((await claims()).slice(0, 20)).toEqual(Array.from({ length: 20 }, () => 10))
    mayEnd.open()
    await inside.reached(2000)
    expect(Math.max(...(await claims()))).toBeGreaterThan(10)
  })

  it('leaves a job of a task that no worker knows ready, and says so', async () => {
    const producer = deployment.producer()
    const seen = gate()
    await deployment.worker({ handlers: [one.handle(() => seen.open())] })
    const stranger = await producer.enqueue(two, 1)
    await producer.enqueue(one, 1)
    await seen.opened
    expect(await producer.get(stranger)).toMatchObject({ state: 'ready', hasWorker: false })
    await deployment.worker({ handlers: [two.handle(() => undefined)] })
    expect(await producer.waitFor(stranger)).toMatchObject({ state: 'succeeded' })
  })

  it.each([
    [{ handlers: [] }, 'at least one handler'],
    [{ handlers: [one.handle(() => 1), one.handle(() => 2)] }, 'two handlers for task one'],
    [
      { handlers: [one.handle(() => 1)], maxConcurrentTasks: 0, pollInterval: -1 },
      /maxConcurrentTasks.*pollInterval/s,
    ],
    [{ handlers: [one.handle(() => 1)], schema: 'Robert"; drop' }, 'is not a valid name'],
    [{ handlers: [one.handle(() => 1)], postgres: 'mysql://x' }, 'must start with postgres://'],
  ])('refuses wrong options (%#) at once', async (options, message) => {
    await expect(deployment.worker(options)).rejects.toThrow(message)
  })
})
