/**
 * History that is over goes in short steps: what groups and edges know of its jobs a page at a time, then its partition. Each race of a page is forced both
 * ways round, and each guard is taken away once.
 */
import { randomUUID } from 'node:crypto'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { settling, workByHand } from '../support/by-hand.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { makeDay } from '../support/make-day.ts'
import { eventually } from '../support/signals.ts'
import { pauseAt, type Weakness, weakened } from '../support/weaken.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const task = defineTask<unknown>({ name: 'old' })
const DAY = '2020-01-01'
const BARRIER = 7_001

interface Step {
  is_done: boolean
  held_by: string | null
  behind_days: number
}

/** Other files use the same server. */
const OF_THIS_DATABASE = 'database = (select d.oid from pg_database d where d.datname = current_database())'
const FORGET = 'select * from longshore.forget_history(p_wait_ms => 1000)'
const forget = async (client?: TestClient): Promise<Step> =>
  (client ? (await client.query(FORGET)).rows : await database.rows(FORGET))[0] as Step
/** `held`: how often a transaction may be in the way. */
const forgetAll = async (held = 0) => {
  for (let step = await forget(); !step.is_done; step = await forget())
    if (step.held_by !== null && held-- === 0) throw new Error(step.held_by)
}
/** Until a page has deleted something. */
const forgetFirstPage = async () => {
  const before = await left()
  while ((await left()) === before) await forget()
}

const left = async () =>
  Number((await database.rows<{ n: string }>('select count(*) as n from longshore.finished_jobs'))[0]?.n)
const edges = async () =>
  Number((await database.rows<{ n: string }>('select count(*) as n from longshore.edges'))[0]?.n)
const isThere = async (name: string) =>
  (await database.rows('select from pg_class where relname = $1', [name])).length > 0
const countsOf = async (id: string, client?: TestClient) => {
  const text =
    'select state, succeeded::int, failed::int, finished_at is not null as "hasEnded" from longshore.group_status where id = $1'
  return (client ? (await client.query(text, [id])).rows : await database.rows(text, [id]))[0]
}
const closeGroup = (id: string) =>
  database.rows('select * from longshore.close_groups(array[$1]::uuid[])', [id])

/** A group that has not ended, with so many jobs of the old day, every fifth of which has failed; each runs after the one before it. */
async function addOld(jobs: number, day = DAY): Promise<string> {
  const id = randomUUID()
  await database.rows('insert into longshore.groups (id) values ($1)', [id])
  await database.rows(
    `with old as (
       insert into longshore.finished_jobs (id, score, lease_token, created_at, finished_at, started_at, lane, keep_until, state,
         attempts, max_attempts, payload, group_id)
       select gen_random_uuid(), n, 1, $3::date, $3::date, $3::date, 1, $3::date,
         (case when n % 5 = 0 then 'failed' else 'succeeded' end)::longshore.job_state, 1, 1, '{}', $1
       from generate_series(1, $2::int) n returning id, score
     )
     insert into longshore.edges (parent, child)
     select a.id, b.id from old a join old b on b.score = a.score + 1`,
    [id, jobs, day],
  )
  return id
}

const inOwnTransaction = async (work: (client: TestClient) => Promise<unknown>) => {
  const client = await database.connect()
  await client.query('begin')
  await work(client)
  return client
}

const barrier = () => inOwnTransaction(client => client.query('select pg_advisory_xact_lock($1)', [BARRIER]))
const atBarrier = () =>
  eventually('it waits at the barrier', async () => {
    const waits = await database.rows(
      `select from pg_locks where locktype = 'advisory' and not granted and ${OF_THIS_DATABASE}`,
    )
    return waits.length > 0
  })
/** A step that is under way, on a connection of its own. */
const startStep = async () => {
  const client = await database.connect()
  const step = forget(client)
  step.catch(() => undefined)
  return { client, step }
}
const paused = (point: string): Weakness => ({ name: 'forget_links', point, insertion: pauseAt(BARRIER) })

beforeEach(async () => {
  deployment.skipAudit('jobs of years ago are made by hand')
  await database.rows('delete from longshore.history_passes')
  await makeDay(database, DAY)
})
afterEach(async () => {
  await database.rows('drop table if exists longshore.finished_jobs_20200101')
  await database.rows('truncate longshore.edges, longshore.groups, longshore.finished_jobs')
})

describe('jobs of groups whose day is over', () => {
  it('[X12] go in pages; after each of them every group tells the same counts', async () => {
    const open = await addOld(2500)
    const ended = await addOld(100)
    expect(await closeGroup(ended)).toHaveLength(1)
    const sizes = new Set<number>()
    for (let isDone = false; !isDone; isDone = (await forget()).is_done) {
      sizes.add(await left())
      expect(await countsOf(open)).toMatchObject({ state: 'dispatching', succeeded: 2000, failed: 500 })
      expect(await countsOf(ended)).toMatchObject({ state: 'failed', succeeded: 80, failed: 20 })
    }
    expect(sizes.size).toBeGreaterThan(2)
    expect(await left()).toBe(0)
    expect(await edges()).toBe(0)
    expect(await isThere('finished_jobs_20200101')).toBe(false)
    expect(await isThere('finished_jobs_20200101_gone')).toBe(false)
    expect(await closeGroup(open)).toHaveLength(1)
    expect(await countsOf(open)).toMatchObject({ state: 'failed', succeeded: 2000, failed: 500 })
  })

  it('[X12] go after their edges, also when one of them has more than a page of those', async () => {
    const open = await addOld(1)
    await database.rows(
      'insert into longshore.edges select gen_random_uuid(), f.id from longshore.finished_jobs f, generate_series(1, 12000)',
    )
    await forgetFirstPage()
    expect(await edges()).toBe(0)
    await forgetAll()
    expect(await countsOf(open)).toMatchObject({ succeeded: 1 })
  })

  it('[X12] go on where a leader stopped that was killed within a page', async () => {
    const open = await addOld(2500)
    await forgetFirstPage()
    const held = await barrier()
    const before = await left()
    await weakened(database, [paused('counted')], async () => {
      const { client, step } = await startStep()
      await atBarrier()
      await database.rows('select pg_terminate_backend($1)', [client.backendPid])
      await expect(step).rejects.toThrow()
      await held.query('rollback')
    })
    expect(await left()).toBe(before)
    expect(await countsOf(open)).toMatchObject({ succeeded: 2000, failed: 500 })
    await forgetAll()
    expect(await countsOf(open)).toMatchObject({ succeeded: 2000, failed: 500 })
  })

  it.each(['groups-held', 'counted'])(
    '[X12] are counted once when two processes take themselves for the leader, one of them paused at %s',
    async point => {
      const open = await addOld(1500)
      await forget()
      const held = await barrier()
      const { step } = await weakened(database, [paused(point)], async () => {
        const first = await startStep()
        await atBarrier()
        expect(await forget()).toMatchObject({ is_done: false, held_by: 'another process is at it' })
        await held.query('rollback')
        await first.step
        return first
      })
      expect(await step).toMatchObject({ held_by: null })
      await forgetAll()
      expect(await countsOf(open)).toMatchObject({ succeeded: 1200, failed: 300 })
    },
  )
})

describe('a page and the end of a group', () => {
  it('[X12] a page first: the group is not closed meanwhile, then with all counts; readers see the same before and after', async () => {
    const open = await addOld(10)
    await forget()
    const held = await barrier()
    await weakened(database, [paused('counted')], async () => {
      const { step } = await startStep()
      await atBarrier()
      expect(await closeGroup(open)).toEqual([])
      expect(await countsOf(open)).toMatchObject({ succeeded: 8, failed: 2, hasEnded: false })
      await held.query('rollback')
      await step
    })
    expect(await left()).toBe(0)
    expect(await countsOf(open)).toMatchObject({ succeeded: 8, failed: 2, hasEnded: false })
    expect(await closeGroup(open)).toHaveLength(1)
    expect(await countsOf(open)).toMatchObject({ succeeded: 8, failed: 2, hasEnded: true })
  })

  /** While `close_groups` has counted and is not committed, a page runs. */
  const whileClosing = async (end: 'commit' | 'rollback') => {
    const open = await addOld(10)
    await forget()
    const closer = await inOwnTransaction(client =>
      client.query('select * from longshore.close_groups(array[$1]::uuid[])', [open]),
    )
    const { step } = await startStep()
    // Without its guard it waits for the other.
    await Promise.race([step, eventually('it waits', async () => (await waiting()).length > 0)])
    await closer.query(end)
    await step
    // The pass that left jobs is over, and another begins.
    await forgetAll(1)
    if (end === 'rollback') await closeGroup(open)
    return countsOf(open)
  }
  const waiting = () => database.rows("select from pg_stat_activity where wait_event_type = 'Lock'")

  it.each(['commit', 'rollback'] as const)(
    '[X12] the end first: the page passes the group over, and its jobs go after the %s',
    async end => {
      expect(await whileClosing(end)).toMatchObject({ succeeded: 8, failed: 2, hasEnded: true })
    },
  )

  it('[X12] without the lock of the group its jobs would be counted twice', async () => {
    const counts = await weakened(database, [{ name: 'forget_links', guard: 'group-lock' }], () =>
      whileClosing('commit'),
    )
    expect(counts).toMatchObject({ succeeded: 16, failed: 4 })
  })

  it('[X12] without passing groups over that others hold, counts would be lost', async () => {
    const counts = await weakened(database, [{ name: 'forget_links', guard: 'passed-over' }], () =>
      whileClosing('rollback'),
    )
    expect(counts).toMatchObject({ succeeded: 0, failed: 0 })
  })

  it('[X12] without deleting what it has counted, the next pass would count it again', async () => {
    const open = await addOld(10)
    const selects =
      'select f.group_id, f.state from longshore.%I f where f.ctid = any ($1) and f.id = any ($2)'
    await weakened(
      database,
      [{ name: 'forget_links', guard: 'counted-once', replacement: selects }],
      async () => {
        await forget()
        await forget()
        expect(await countsOf(open)).toMatchObject({ succeeded: 16, failed: 4 })
      },
    )
  })

  it('[X12] a page leaves the group to the settle of its last job, and that is counted', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const group = producer.group()
    group.add(task, 'last')
    await group.submit()
    const [added] = await database.rows<{ id: string }>('select id from longshore.groups')
    const old = await addOld(10)
    await database.rows('update longshore.finished_jobs set group_id = $1 where group_id = $2', [
      added?.id,
      old,
    ])
    const worker = await workByHand(database, ['old'])
    const claimed = await worker.claim(1)
    await forget()
    const held = await barrier()
    await weakened(database, [paused('counted')], async () => {
      const { step } = await startStep()
      await atBarrier()
      expect(await worker.settle(claimed.map(settling))).toEqual([])
      await held.query('rollback')
      await step
    })
    expect(await closeGroup(added?.id ?? '')).toHaveLength(1)
    expect(await countsOf(added?.id ?? '')).toMatchObject({ state: 'failed', succeeded: 9, failed: 2 })
  })
})

describe('the partition of a day that is over', () => {
  const write = (client: TestClient, group: string) =>
    client.query(
      `insert into longshore.finished_jobs (id, score, lease_token, created_at, finished_at, lane, keep_until, state, attempts,
         max_attempts, payload, group_id)
       values (gen_random_uuid(), 0, 1, now(), now(), 1, $2, 'failed', 1, 1, '{}', $1)`,
      [group, DAY],
    )
  /** An open transaction has written to it, and commits when the steps have come as far as they can. */
  const besideWriter = async () => {
    const open = await addOld(10)
    const writer = await inOwnTransaction(client => write(client, open))
    for (let n = 0; n < 5; n++) {
      const { held_by: heldBy } = (
        await database.rows<Step>('select * from longshore.forget_history(p_wait_ms => 20)')
      )[0] as Step
      if (heldBy !== null) break
    }
    await writer.query('commit')
    await forgetAll()
    return countsOf(open)
  }

  it('[X12] is not gone through before transactions that write to it have ended, so that their jobs count', async () => {
    expect(await besideWriter()).toMatchObject({ succeeded: 8, failed: 3 })
  })

  it('[X12] would lose them otherwise', async () => {
    const counts = await weakened(database, [{ name: 'forget_page', guard: 'writers-gone' }], besideWriter)
    expect(counts).toMatchObject({ succeeded: 8, failed: 2 })
  })

  it('[X12] goes only after its links: otherwise counts are lost', async () => {
    const open = await addOld(10)
    await weakened(database, [{ name: 'forget_days', guard: 'links-first', replacement: 'and false' }], () =>
      forgetAll(),
    )
    expect(await countsOf(open)).toMatchObject({ succeeded: 0, failed: 0 })
    expect(await edges()).toBe(9)
  })

  /** It has been gone through when the clock goes back, more jobs end on that day, and the clock is right again. */
  const withClockBack = async () => {
    const open = await addOld(10)
    while ((await database.rows('select from longshore.history_passes where is_done')).length === 0)
      await forget()
    await database.rows("select longshore.forget_days('finished_jobs', '2019-12-31', 10)")
    await write(await database.connect(), open)
    await forgetAll()
    return countsOf(open)
  }

  it('[X12] is gone through again when the clock went back before it was dropped', async () => {
    expect(await withClockBack()).toMatchObject({ succeeded: 8, failed: 3 })
  })

  it('[X12] would lose what came meanwhile otherwise', async () => {
    const counts = await weakened(database, [{ name: 'forget_days', guard: 'begin-anew' }], withClockBack)
    expect(counts).toMatchObject({ succeeded: 8, failed: 2 })
  })

  /** Whether a settle would have had to wait behind this call. */
  const stops = async (call: string): Promise<boolean> => {
    const client = await database.connect()
    let hasEnded = false
    let isSeen = false
    const asked = client.query(call).finally(() => {
      hasEnded = true
    })
    while (!hasEnded) {
      const waits = await database.rows(
        `select from pg_locks where not granted and mode = 'AccessExclusiveLock' and locktype = 'relation' and ${OF_THIS_DATABASE}`,
      )
      isSeen ||= waits.length > 0
    }
    await asked
    return isSeen
  }
  const besideReader = async (call: string) => {
    const reader = await inOwnTransaction(client =>
      client.query('select count(*) from longshore.finished_jobs'),
    )
    try {
      return await stops(call)
    } finally {
      await reader.query('rollback')
    }
  }

  it('[X12] is not asked for beside a transaction that reads the history: no settle has to wait', async () => {
    for (const _ of [1, 2]) await forget()
    expect(await besideReader(FORGET)).toBe(false)
    expect(
      await weakened(database, [{ name: 'detach_day', guard: 'no-long-wait' }], () => besideReader(FORGET)),
    ).toBe(true)
  })

  it('[X12] nor is the default partition, where a day is to be made', async () => {
    const prepare = 'select * from longshore.prepare_history(p_wait_ms => 1000)'
    const [last] = await database.rows<{ name: string }>(
      "select max(relname) as name from pg_class where relname ~ '^finished_jobs_[0-9]{8}$'",
    )
    await database.rows(`drop table longshore.${last?.name}`)
    expect(await besideReader(prepare)).toBe(false)
    expect(
      await weakened(database, [{ name: 'prepare_days', guard: 'no-long-wait' }], () =>
        besideReader(prepare),
      ),
    ).toBe(true)
    await database.rows('select longshore.prepare_history()')
    expect(await isThere(last?.name ?? '')).toBe(true)
  })

  it('[X12] a settle in flight is waited for, and then it goes', async () => {
    for (const _ of [1, 2]) await forget()
    const producer = deployment.producer({ tasks: [task] })
    await producer.enqueue(task, 1)
    const worker = await workByHand(database, ['old'])
    const claimed = await worker.claim(1)
    const settler = await inOwnTransaction(client => worker.settle(claimed.map(settling), client))
    expect(await forget()).toMatchObject({ held_by: expect.stringContaining('holds') })
    await settler.query('commit')
    await forgetAll()
    expect(await isThere('finished_jobs_20200101')).toBe(false)
    expect(await left()).toBe(1)
  })
})
