import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { makeDay } from '../support/make-day.ts'
import { eventually } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const task = defineTask({ name: 'past' })

const partitions = async () =>
  (
    await database.rows<{ name: string }>(
      `select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
       where i.inhparent = 'longshore.finished_jobs'::regclass order by 1`,
    )
  ).map(row => row.name)

const nameOf = async (days: number) =>
  (
    await database.rows<{ name: string }>(
      "select 'finished_jobs_' || to_char((now() at time zone 'utc')::date + $1::int, 'YYYYMMDD') as name",
      [days],
    )
  )[0]?.name

/** Those that a longer retention has made. */
const dropBeyond = async (days: number) => {
  const last = (await nameOf(days)) ?? ''
  for (const name of await partitions())
    if (name > last && name !== 'finished_jobs_default') await database.rows(`drop table longshore.${name}`)
}

/** Tomorrow, and so many days more than the retention: jobs that end within the next 14 days find their partition. */
const FIRST = 1
const LAST = 7 + 14
const COUNT = LAST - FIRST + 1 + 1

/** By hand: the upkeep of a real worker would make partitions at once. */
const endOne = async (payload: string) => {
  const producer = deployment.producer()
  const ref = await producer.enqueue(task, payload)
  const worker = await workByHand(database, ['past'])
  const [job] = await worker.claim(1)
  if (!job) throw new Error('not claimed')
  expect(await worker.settle([settling(job)], undefined, { [ref.id]: 'done' })).toEqual([])
  const where = async () => {
    const [row] = await database.rows<{ name: string; days: number }>(
      `select tableoid::regclass::text as name, keep_until - (now() at time zone 'utc')::date as days
       from longshore.finished_jobs where id = $1`,
      [ref.id],
    )
    return row
  }
  return { producer, ref, where }
}
/** The default partition is gone through once a day. */
const startDay = () => database.rows('delete from longshore.history_passes')
/** As the leader does, step by step. */
const forget = async () => {
  await startDay()
  for (let isDone = false; !isDone; ) {
    const [step] = await database.rows<{ is_done: boolean; held_by: string | null }>(
      'select * from longshore.forget_history()',
    )
    expect(step?.held_by).toBeNull()
    isDone = step?.is_done === true
  }
}
const setRetention = (days: number) =>
  database.rows('update longshore.settings set retention_days = $1', [days])

describe('the history', () => {
  it('has a partition for each day until which jobs of the next 14 days are kept, and a default one', async () => {
    const found = await partitions()
    expect(found).toHaveLength(COUNT)
    expect(found).toContain(await nameOf(FIRST))
    expect(found).toContain(await nameOf(LAST))
    expect(found).toContain('finished_jobs_default')
  })

  it('takes a finished job also when its partition is missing, and moves it when that is made', async () => {
    await database.rows(`drop table longshore.${await nameOf(7)}`)
    const { producer, ref, where } = await endOne('kept')
    expect(await where()).toEqual({ name: 'longshore.finished_jobs_default', days: 7 })
    await database.rows('select longshore.prepare_history(14)')
    expect(await where()).toEqual({ name: `longshore.${await nameOf(7)}`, days: 7 })
    expect(await producer.get(ref)).toMatchObject({ state: 'succeeded', payload: 'kept', result: 'done' })
  })

  it('[X28] keeps a job as the settings said when it ended, though they are changed afterwards', async () => {
    deployment.skipAudit('the history of a job is dropped')
    const before = await endOne('before')
    await setRetention(2)
    const after = await endOne('after')
    expect((await before.where())?.days).toBe(7)
    expect(await after.where()).toEqual({ name: `longshore.${await nameOf(2)}`, days: 2 })
    // Partitions that this needs are made with the change.
    await setRetention(100)
    const long = await endOne('long')
    const { name = '', days = 0 } = (await long.where()) ?? {}
    expect(name).toBe(`longshore.${await nameOf(days)}`)
    expect(days).toBeGreaterThanOrEqual(100)
    expect(days).toBeLessThan(100 + 31)
    await setRetention(7)
    await forget()
    for (const { producer, ref } of [before, after, long])
      expect(await producer.get(ref)).toMatchObject({ state: 'succeeded' })
    await dropBeyond(LAST)
  })

  it.each([
    [1, '2026-05-07', '2026-05-08'],
    [14, '2026-05-07', '2026-05-21'],
    // The next Sunday.
    [15, '2026-05-07', '2026-05-24'],
    [17, '2026-05-07', '2026-05-24'],
    [18, '2026-05-07', '2026-05-31'],
    [56, '2026-05-07', '2026-07-05'],
    // The end of the month.
    [57, '2026-05-07', '2026-07-31'],
    [90, '2027-12-02', '2028-03-31'],
    [89, '2027-12-02', '2028-02-29'],
    [730, '2026-05-07', '2028-05-31'],
    // The end of the year.
    [731, '2026-05-07', '2028-12-31'],
    [3650, '2026-05-07', '2036-12-31'],
  ])('[X28] keeps a job for %i days that ended on %s until %s', async (days, ended, until) => {
    expect(await database.rows('select longshore.kept_until($1, $2)::text as until', [ended, days])).toEqual([
      { until },
    ])
  })

  it('[X12] has less than 75 partitions when it keeps jobs for ten years, and one for every retention up to that', async () => {
    await setRetention(3650)
    const found = await partitions()
    expect(found.length).toBeLessThan(75)
    const [missing] = await database.rows<{ count: number }>(
      `select count(*)::int as count
       from generate_series(0, 14) e, generate_series(1, 3650) n
       where to_regclass('longshore.finished_jobs_' || to_char(
         longshore.kept_until((now() at time zone 'utc')::date + e, n), 'YYYYMMDD')) is null`,
    )
    expect(missing?.count).toBe(0)
    await setRetention(7)
    await dropBeyond(LAST)
  })

  it('[X11] does not wait for a transaction that holds it when the retention is raised: the change is refused', async () => {
    const tx = await database.connect()
    await tx.query('begin')
    await tx.query('select count(*) from longshore.finished_jobs')
    await expect(setRetention(30)).rejects.toThrow('an open transaction holds the history')
    await setRetention(3)
    await tx.query('rollback')
    await setRetention(7)
    expect(await partitions()).toHaveLength(COUNT)
  })

  it('is dropped by whole partitions when their last day is over', async () => {
    await makeDay(database, '2020-01-01')
    const old = `insert into longshore.finished_jobs
      (id, score, lease_token, created_at, finished_at, lane, keep_until, state, attempts, max_attempts, payload)
      values (gen_random_uuid(), 0, 0, now(), now(), 1, $1, 'succeeded', 1, 1, '{}')`
    await database.rows(old, ['2020-01-01'])
    await database.rows(old, ['2020-01-05'])
    // The last day is not over yet.
    const [today] = await database.rows<{ day: string }>(
      "select (now() at time zone 'utc')::date::text as day",
    )
    await database.rows(old, [today?.day])
    await startDay()
    await deployment.worker({ handlers: [task.handle(() => undefined)] })
    await eventually(
      'the upkeep has dropped the old day',
      async () => !(await partitions()).includes('finished_jobs_20200101'),
    )
    await eventually('and what the default partition held', async () => {
      return (
        (await database.rows("select from longshore.finished_jobs where keep_until < '2021-01-01'"))
          .length === 0
      )
    })
    expect(await partitions()).toHaveLength(COUNT)
    expect(
      await database.rows('delete from longshore.finished_jobs where keep_until = $1 returning id', [
        today?.day,
      ]),
    ).toHaveLength(1)
  })

  it('keeps settling while somebody reads it in a long transaction, and prepares the days when that has ended', async () => {
    await database.rows(`drop table longshore.${await nameOf(LAST)}`)
    const tx = await database.connect()
    await tx.query('begin')
    await tx.query('select count(*) from longshore.finished_jobs')
    const producer = deployment.producer()
    await deployment.worker({ handlers: [task.handle(() => undefined)] })
    const refs = await producer.enqueueMany(task, [1, 2, 3])
    for (const ref of refs) expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded' })
    await tx.query('rollback')
    await eventually('the day is prepared', async () => (await partitions()).length === COUNT)
  })

  it('[S10] removes waits that have expired', async () => {
    await database.rows(
      "insert into longshore.awaited values (gen_random_uuid(), 'somebody', now() - interval '1 second')",
    )
    await deployment.worker({ handlers: [task.handle(() => undefined)] })
    await eventually(
      'it is gone',
      async () => (await database.rows('select from longshore.awaited')).length === 0,
    )
  })

  it('[S5] forgets the edges and groups of what it drops, and keeps the counts of groups that go on', async () => {
    deployment.skipAudit('the history of its jobs is dropped')
    await makeDay(database, '2020-01-01')
    const producer = deployment.producer()
    const worker = await workByHand(database, ['past'])
    const submit = async (names: string[]) => {
      const group = producer.group()
      const jobs = names.map(name => group.add(task, name))
      const last = group.add(task, 'last', { after: jobs })
      await group.submit()
      return { group, jobs, last }
    }
    const settle = async (count: number) => {
      for (let n = 0; n < count; n++) await worker.settle((await worker.claim(1)).map(settling))
    }
    /** As if that had been years ago, on a day with a partition of its own or not. */
    const age = (id: string, day: string) =>
      database.rows(
        'update longshore.finished_jobs set keep_until = $2, finished_at = $2::date where group_id = $1',
        [id, day],
      )
    const ended = await submit(['a'])
    await settle(2)
    await database.rows('select longshore.close_groups(array[$1]::uuid[])', [ended.group.id])
    await database.rows("update longshore.groups set finished_at = '2020-01-01' where id = $1", [
      ended.group.id,
    ])
    await age(ended.group.id, '2020-01-01')
    const open = await submit(['a', 'b', 'c'])
    await settle(1)
    await age(open.group.id, '2020-01-01')
    await producer.cancel(open.jobs[1] as (typeof open.jobs)[0])
    await age(open.group.id, '2020-01-05')
    const fresh = await submit(['a'])
    await settle(1) // what is left of the open one
    for (let time = 0; time < 2; time++) {
      await forget()
      expect(await producer.getGroup(ended.group)).toBeUndefined()
      expect(await producer.getGroup(open.group)).toMatchObject({
        state: 'dispatching',
        counts: { succeeded: 2, cancelled: 1, dependency_failed: 1 },
      })
      expect(await database.rows('select child from longshore.edges')).toEqual([{ child: fresh.last.id }])
    }
    const more = producer.addToGroup(open.group)
    more.add(task, 'late', { after: open.jobs[0] as (typeof open.jobs)[0] })
    await expect(more.submit()).rejects.toMatchObject({
      code: 'GROUP_INVALID',
      message: expect.stringContaining('its history has been dropped'),
    })
    // The refusal is told a moment before it lets go of the group.
    const close = () => database.rows('select longshore.close_groups(array[$1]::uuid[])', [open.group.id])
    await eventually('the group is closed', async () => (await close()).length === 1)
    expect(await producer.getGroup(open.group)).toMatchObject({
      state: 'failed',
      counts: { succeeded: 2, cancelled: 1, dependency_failed: 1 },
    })
    await settle(2)
  })
})
