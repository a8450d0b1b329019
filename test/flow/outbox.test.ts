/** What a transaction changes and Redis must learn of stands in the outbox when it commits, in one row, and only then. */
import { beforeEach, describe, expect, inject, it } from 'vitest'
import { type ChangeOptions, defineTask } from '../../src/index.ts'
import { openPool } from '../../src/postgres/connect.ts'
import { readOutbox } from '../../src/postgres/relay-reads.ts'
import { workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { eventually } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const task = defineTask<number>({
  name: 'noted',
  retry: { maxAttempts: 3, backoff: { type: 'fixed', delay: 0 } },
})
const limited = defineTask<number>({ name: 'limited', concurrency: 2 })
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n)

interface Row {
  jobs: string[]
  lane: number | null
  limits: number[]
  lanes: number[]
  workers: number[]
}
/** The rows since the last look. */
async function noted(): Promise<Row[]> {
  const rows = await database.rows<Row>(
    'with gone as (delete from longshore.outbox returning *) select * from gone order by id',
  )
  return rows
}

beforeEach(async () => {
  await database.rows("update longshore.settings set dispatch = 'redis'")
  const producer = deployment.producer({ tasks: [task, limited] })
  await producer.enqueue(task, 0, { delay: '1h' })
  await noted()
})

describe('the outbox', () => {
  it('[S14] names the jobs of an enqueue in one row, with their place if they share one', async () => {
    const producer = deployment.producer()
    const refs = await producer.enqueueMany(task, numbers(500))
    const rows = await noted()
    expect(rows).toHaveLength(1)
    expect(rows[0]?.jobs).toEqual(refs.map(ref => ref.id))
    expect(rows[0]?.lane).not.toBeNull()
  })

  it('[S14] names nothing that is not ready, and nothing of a transaction that rolls back', async () => {
    const producer = deployment.producer()
    await producer.enqueue(task, 1, { delay: '1h' })
    const tx = await database.connect()
    await tx.query('begin')
    await producer.enqueue(task, 1, { tx })
    await tx.query('rollback')
    expect(await noted()).toEqual([])
  })

  it('[X1] names what plain SQL enqueues, and a chosen id once', async () => {
    const id = '0198c0de-0000-7000-8000-000000000001'
    const sql = "select longshore.enqueue('noted', '1', jsonb_build_object('id', $1::text))"
    await database.rows(sql, [id])
    expect((await noted()).map(row => row.jobs)).toEqual([[id]])
    await database.rows(sql, [id])
    expect(await noted()).toEqual([])
  })

  it('[D9] names a job that is changed or cancelled while it is ready', async () => {
    const producer = deployment.producer()
    const ref = await producer.enqueue(task, 1)
    await noted()
    const changes: ChangeOptions[] = [
      { priority: 3 },
      { constraints: { gpu: 'a100' } },
      { delay: '1h' },
      { delay: 0 },
    ]
    for (const change of changes) {
      await producer.change(ref, change)
      expect((await noted()).map(row => row.jobs)).toEqual([[ref.id]])
    }
    await producer.cancel(ref)
    expect((await noted()).map(row => row.jobs)).toEqual([[ref.id]])
    const scheduled = await producer.enqueue(task, 1, { delay: '1h' })
    await producer.change(scheduled, { priority: 5 })
    await producer.cancel(scheduled)
    expect(await noted()).toEqual([])
  })

  it('[S14] names in one row what a settle makes ready again, and nothing that ended', async () => {
    const producer = deployment.producer()
    const refs = await producer.enqueueMany(task, numbers(4))
    const worker = await workByHand(database, ['noted'])
    const claimed = await worker.claim(4)
    await noted()
    const [first, second, third, fourth] = claimed
    await worker.settleOthers([
      { id: first?.id, token: first?.lease_token, outcome: 'retry', delayMs: 0, error: { code: 'x' } },
      { id: second?.id, token: second?.lease_token, outcome: 'released' },
      { id: third?.id, token: third?.lease_token, outcome: 'failed', error: { code: 'x' } },
    ])
    expect((await noted()).map(row => row.jobs)).toEqual([[refs[0]?.id, refs[1]?.id]])
    await worker.settle([{ id: fourth?.id as string, token: fourth?.lease_token as string }])
    expect(await noted()).toEqual([])
  })

  it('[S7] names in one row what a rescue takes back, with its limits, and the worker that is dead', async () => {
    const producer = deployment.producer()
    const refs = await producer.enqueueMany(limited, numbers(2))
    const worker = await workByHand(database, ['limited'])
    await worker.claim(2)
    await noted()
    await database.rows("update longshore.workers set expires_at = now() - interval '1 hour'")
    await database.rows('select * from longshore.rescue(1000000, 100)')
    const rows = await noted()
    expect(rows.map(row => row.jobs)).toEqual([refs.map(ref => ref.id)])
    expect(rows[0]?.workers).toEqual([worker.id])
    expect(new Set(rows[0]?.limits).size).toBe(1)
  })

  it('names jobs that have come due, in one row', async () => {
    const producer = deployment.producer()
    await producer.enqueueMany(task, numbers(3), { delay: 1 })
    await producer.enqueueMany(limited, numbers(2), { delay: 1 })
    await eventually('they are due', async () => {
      const [row] = await database.rows<{ n: number }>(
        'select count(*)::int as n from longshore.jobs where longshore.run_at_of(score) < clock_timestamp()',
      )
      return row?.n === 5
    })
    await noted()
    await database.rows('select * from longshore.promote_due(100)')
    expect((await noted()).map(row => row.jobs.length)).toEqual([5])
  })

  it('[L6] names a limit whose capacity changes, and the lanes of a task that gets or loses one', async () => {
    const [lane] = await database.rows<{ id: number }>(
      "select id from longshore.lanes where task = 'limited'",
    )
    const register = async (concurrency: number | null) => {
      await database.rows('select longshore.register_tasks($1)', [
        JSON.stringify([{ name: 'limited', queue: 'default', tag: 'default', maxAttempts: 3, concurrency }]),
      ])
      return noted()
    }
    const [limit] = await database.rows<{ id: number }>('select id from longshore.limits')
    expect(await register(5)).toMatchObject([{ limits: [limit?.id], lanes: [] }])
    expect(await register(5)).toEqual([])
    expect(await register(null)).toMatchObject([{ lanes: [lane?.id] }])
    expect(await register(2)).toMatchObject([{ lanes: [lane?.id] }])
  })

  it('[L7] names a limit when a slot of it is freed that somebody waits for, and not otherwise', async () => {
    const producer = deployment.producer()
    await producer.enqueueMany(limited, numbers(5))
    const worker = await workByHand(database, ['limited'])
    const [first, second] = await worker.claim(2)
    await noted()
    await worker.settle([{ id: first?.id as string, token: first?.lease_token as string }])
    expect(await noted()).toEqual([])
    await worker.claim(5)
    await worker.settle([{ id: second?.id as string, token: second?.lease_token as string }])
    expect(await noted()).toMatchObject([{ limits: [expect.any(Number)], jobs: [] }])
  })

  it('[X3] holds nothing where jobs go directly through Postgres', async () => {
    await database.rows("update longshore.settings set dispatch = 'direct'")
    const producer = deployment.producer()
    const [ref] = await producer.enqueueMany(task, numbers(10))
    await producer.cancel(ref?.id as string)
    expect(await noted()).toEqual([])
  })
})

describe('the commit of an outbox row', () => {
  it('notifies the relay if it sleeps when it commits, and only then', async () => {
    const listener = await database.connect()
    const heard: string[] = []
    listener.on('notification', ({ channel }) => heard.push(channel))
    await listener.query(`listen "${'"longshore".outbox'.replaceAll('"', '""')}"`)
    const producer = deployment.producer()
    await database.rows('update longshore.leader set asleep = false')
    await producer.enqueue(task, 1)
    const tx = await database.connect()
    await tx.query('begin')
    await producer.enqueue(task, 2, { tx })
    await listener.query('select 1')
    expect(heard).toEqual([])
    // It has gone to sleep while the transaction was open.
    await database.rows('update longshore.leader set asleep = true')
    await tx.query('commit')
    await eventually('the relay is notified', async () => {
      await listener.query('select 1')
      return heard.length === 1
    })
    await database.rows('update longshore.leader set asleep = false')
  })
})

describe('reading the outbox', () => {
  const ask = (holder: string, more: object = {}) => ({
    holder: { name: holder, secret: null },
    done: [],
    seqs: new Map(),
    from: '0',
    most: 100,
    bounds: new Map(),
    jobs: [],
    limits: [],
    ...more,
  })
  const withPool = async (work: (pool: ReturnType<typeof openPool>) => Promise<void>) => {
    const pool = openPool(database.url, 1, () => undefined)
    try {
      await work(pool)
    } finally {
      await pool.end()
    }
  }
  const lead = (holder: string) => database.rows('select longshore.lead($1, 60000, 2)', [holder])

  it('tells the truth of now, not of then, and forgets exactly the rows that were read', () =>
    withPool(async pool => {
      await lead('me')
      const producer = deployment.producer()
      const [first, second] = await producer.enqueueMany(task, numbers(2))
      const read = await readOutbox(pool, 'longshore', ask('me'))
      expect(read.ready.map(job => job.id as string).sort()).toEqual([first?.id, second?.id])
      await producer.change(first?.id as string, { priority: 7 })
      await producer.cancel(second?.id as string)
      const again = await readOutbox(pool, 'longshore', ask('me'))
      expect(again.rows).toHaveLength(3)
      expect(again.ready).toMatchObject([{ id: first?.id }])
      expect(again.ready[0]?.score).not.toBe(read.ready.find(job => job.id === first?.id)?.score)
      expect(again.gone).toEqual([second?.id])
      const late = await producer.enqueue(task, 3)
      const next = await readOutbox(pool, 'longshore', ask('me', { done: again.rows }))
      expect(next.ready.map(job => job.id)).toEqual([late.id])
    }))

  it('passes over jobs for which Redis has no room', () =>
    withPool(async pool => {
      await lead('me')
      const producer = deployment.producer()
      await producer.enqueueMany(task, numbers(3))
      const [job] = await database.rows<{ lane: number; score: string }>(
        "select lane, score from longshore.jobs where state = 'ready' limit 1",
      )
      const bound = (score: bigint) => new Map([[job?.lane as number, String(score)]])
      const score = BigInt(job?.score ?? 0)
      const beyond = await readOutbox(pool, 'longshore', ask('me', { bounds: bound(score - 1n) }))
      expect([beyond.rows.length, beyond.ready.length, beyond.gone.length]).toEqual([1, 0, 0])
      const within = await readOutbox(pool, 'longshore', ask('me', { bounds: bound(score) }))
      expect(within.ready).toHaveLength(3)
    }))

  it('[X7] is refused to whoever does not lead: nothing is told, nothing is forgotten', () =>
    withPool(async pool => {
      await lead('me')
      await deployment.producer().enqueue(task, 1)
      const read = await readOutbox(pool, 'longshore', ask('me'))
      await database.rows("update longshore.leader set expires_at = '-infinity'")
      expect(await readOutbox(pool, 'longshore', ask('me', { done: read.rows }))).toMatchObject({
        isLeader: false,
        rows: [],
      })
      await lead('other')
      expect((await readOutbox(pool, 'longshore', ask('me', { done: read.rows }))).isLeader).toBe(false)
      expect(await database.rows('select id from longshore.outbox')).toHaveLength(1)
    }))
})

describe('the lease', () => {
  const lead = async (holder: string, rank: number) =>
    (
      await database.rows<{ epoch: string | null }>('select longshore.lead($1, 60000, $2) as epoch', [
        holder,
        rank,
      ])
    )[0]?.epoch ?? null

  it('[X7] goes from a worker to a relay at once, and not the other way', async () => {
    await database.rows("update longshore.leader set holder = null, rank = 0, expires_at = '-infinity'")
    const worker = await lead('worker', 0)
    const relay = await lead('relay', 2)
    expect(BigInt(relay ?? 0)).toBe(BigInt(worker ?? 0) + 1n)
    expect(await lead('worker', 0)).toBeNull()
    expect(await lead('other relay', 2)).toBeNull()
    expect(await lead('relay', 2)).toBe(relay)
  })

  it('[S9] lets a leader without Redis leave it after a minute, and no other', async () => {
    await database.rows("update longshore.leader set holder = null, rank = 0, expires_at = '-infinity'")
    await deployment.producer().enqueue(task, 1)
    const leave = async (holder: string) =>
      (await database.rows<{ left: boolean }>('select longshore.switch_to_direct($1) as left', [holder]))[0]
        ?.left
    await lead('relay', 2)
    expect(await leave('relay')).toBe(false)
    expect(await leave('worker')).toBe(false)
    await database.rows("update longshore.leader set expires_at = '-infinity'")
    await lead('worker', 0)
    expect(await leave('worker')).toBe(false)
    await database.rows("update longshore.leader set since = now() - interval '1 minute'")
    expect(await leave('worker')).toBe(true)
    expect(await leave('worker')).toBe(false)
    expect(await database.rows('select from longshore.outbox')).toEqual([])
    expect(await database.rows('select dispatch from longshore.settings')).toEqual([{ dispatch: 'direct' }])
  })
})

describe('a producer that hints', () => {
  it('[S10] does not wake the relay, which finds the row at its next look', async () => {
    const redis = inject('redisUrl')
    await database.rows("update longshore.settings set dispatch = 'direct'")
    const relay = await deployment.relay({ redis })
    await eventually('the relay leads', async () => relay.metrics().isLeader)
    const producer = deployment.producer({ tasks: [task], redis })
    await producer.enqueue(task, 1)
    await eventually('it is connected, and hints', async () => {
      const ref = await producer.enqueue(task, 1)
      const [row] = await database.rows<{ hinted: boolean }>(
        'select hinted from longshore.outbox where $1 = any (jobs)',
        [ref.id],
      )
      return row?.hinted ?? false
    })
    await eventually('the relay has read everything', async () => {
      const [row] = await database.rows<{ left: number }>(
        'select count(*)::int as left from longshore.outbox',
      )
      return row?.left === 0
    })
  })
})
