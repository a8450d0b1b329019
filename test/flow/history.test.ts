import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
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

describe('the history', () => {
  it('has a partition for today, for 14 days ahead, and a default one', async () => {
    const found = await partitions()
    expect(found).toHaveLength(16)
    expect(found).toContain(await nameOf(0))
    expect(found).toContain(await nameOf(14))
    expect(found).toContain('finished_jobs_default')
  })

  it('takes a finished job also when the partition of the day is missing, and moves it when it is made', async () => {
    await database.rows(`drop table longshore.${await nameOf(0)}`)
    const producer = deployment.producer()
    const ref = await producer.enqueue(task, 'kept')
    // By hand: the upkeep of a real worker would make the partition at once.
    const worker = await workByHand(database, ['past'])
    const [job] = await worker.claim(1)
    if (!job) throw new Error('not claimed')
    expect(await worker.settle([settling(job)], undefined, { [ref.id]: 'done' })).toEqual([])
    const where = async () => {
      const [row] = await database.rows<{ name: string }>(
        'select tableoid::regclass::text as name from longshore.finished_jobs',
      )
      return row?.name
    }
    expect(await where()).toBe('longshore.finished_jobs_default')
    await database.rows('select longshore.prepare_history(14)')
    expect(await where()).toBe(`longshore.${await nameOf(0)}`)
    expect(await producer.get(ref)).toMatchObject({ state: 'succeeded', payload: 'kept', result: 'done' })
  })

  it('is dropped by whole days when its retention is over', async () => {
    await database.rows(`
      create table longshore.finished_jobs_20200101 (like longshore.finished_jobs including all);
      alter table longshore.finished_jobs attach partition longshore.finished_jobs_20200101
        for values from ('2020-01-01') to ('2020-01-02')`)
    const old = `insert into longshore.finished_jobs
      (id, score, lease_token, created_at, finished_at, lane, day, state, attempts, max_attempts, payload)
      values (gen_random_uuid(), 0, 0, now(), now(), 1, $1, 'succeeded', 1, 1, '{}')`
    await database.rows(old, ['2020-01-01'])
    await database.rows(old, ['2020-01-05'])
    await deployment.worker({ handlers: [task.handle(() => undefined)] })
    await eventually(
      'the upkeep has dropped the old day',
      async () => !(await partitions()).includes('finished_jobs_20200101'),
    )
    await eventually('and what the default partition held', async () => {
      return (
        (await database.rows("select from longshore.finished_jobs where day < '2021-01-01'")).length === 0
      )
    })
    expect(await partitions()).toHaveLength(16)
  })

  it('keeps settling while somebody reads it in a long transaction, and prepares the days when that has ended', async () => {
    await database.rows(`drop table longshore.${await nameOf(14)}`)
    const tx = await database.connect()
    await tx.query('begin')
    await tx.query('select count(*) from longshore.finished_jobs')
    const producer = deployment.producer()
    await deployment.worker({ handlers: [task.handle(() => undefined)] })
    const refs = await producer.enqueueMany(task, [1, 2, 3])
    for (const ref of refs) expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded' })
    await tx.query('rollback')
    await eventually('the day is prepared', async () => (await partitions()).length === 16)
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
    await database.rows(`
      create table longshore.finished_jobs_20200101 (like longshore.finished_jobs including all);
      alter table longshore.finished_jobs attach partition longshore.finished_jobs_20200101
        for values from ('2020-01-01') to ('2020-01-02')`)
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
        'update longshore.finished_jobs set day = $2, finished_at = $2::date where group_id = $1',
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
      await database.rows('select longshore.drop_history(30)')
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
