/** Days of a deployment that was left alone: no upkeep for a month, a default partition that has filled, clocks and zones. */
import { afterEach, describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { settling, workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { makeDay } from '../support/make-day.ts'
import { eventually } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const task = defineTask<unknown>({ name: 'day' })

const partitions = async () =>
  (
    await database.rows<{ name: string }>(
      `select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
       where i.inhparent = 'longshore.finished_jobs'::regclass and c.relname ~ '[0-9]$' order by 1`,
    )
  ).map(row => row.name)
const nameOf = async (days: number) =>
  (
    await database.rows<{ name: string }>(
      "select 'finished_jobs_' || to_char((now() at time zone 'utc')::date + $1::int, 'YYYYMMDD') as name",
      [days],
    )
  )[0]?.name ?? ''
const dropAll = async () => {
  for (const name of await partitions()) await database.rows(`drop table longshore.${name}`)
}
/** Ended jobs, spread over these days from today on. */
const store = (jobs: number, from: number, to: number) =>
  database.rows(
    `insert into longshore.finished_jobs (id, score, lease_token, created_at, finished_at, started_at, lane, keep_until, state,
       attempts, max_attempts, payload)
     select gen_random_uuid(), n, 1, now(), now(), now(), 1, (now() at time zone 'utc')::date + $2::int + n % ($3::int - $2::int + 1),
       'succeeded', 1, 1, '{"what": "so that a row has some length, as those of real jobs do"}'
     from generate_series(1, $1::int) n`,
    [jobs, from, to],
  )
const count = async (where = 'true', table = 'finished_jobs') =>
  Number(
    (await database.rows<{ n: string }>(`select count(*) as n from longshore.${table} where ${where}`))[0]?.n,
  )
/** One job ends; where it went. */
const endOne = async () => {
  const ref = await deployment.producer({ tasks: [task] }).enqueue(task, 1)
  const worker = await workByHand(database, ['day'])
  expect(await worker.settle((await worker.claim(1)).map(settling))).toEqual([])
  const [row] = await database.rows<{ name: string }>(
    'select tableoid::regclass::text as name from longshore.finished_jobs where id = $1',
    [ref.id],
  )
  return row?.name.replace(/^.*\./, '').replaceAll('"', '')
}
const prepare = async () =>
  (
    await database.rows<{ is_done: boolean; held_by: string | null }>(
      'select * from longshore.prepare_history(p_wait_ms => 1000)',
    )
  )[0]
const prepareAll = async () => {
  for (let step = await prepare(); !step?.is_done; step = await prepare()) expect(step?.held_by).toBeNull()
}
const constraints = () =>
  database.rows<{ name: string }>("select name from longshore.days_apart('finished_jobs')")

afterEach(async () => {
  await dropAll()
  await database.rows('truncate longshore.finished_jobs')
  await database.rows('delete from longshore.history_passes')
  await database.rows('update longshore.settings set retention_days = 7')
  await database.rows('select longshore.prepare_history()')
})

describe('after a month without upkeep', () => {
  it('[X12] old days go, missing ones are made, and jobs end meanwhile', async () => {
    deployment.skipAudit('jobs of other days are made by hand')
    await dropAll()
    for (let day = 10; day < 30; day++) await makeDay(database, `2020-01-${day}`)
    await store(400, -20, 7)
    const producer = deployment.producer({ tasks: [task] })
    await deployment.worker({ handlers: [task.handle(() => undefined)] })
    const refs = await producer.enqueueMany(
      task,
      Array.from({ length: 50 }, (_, n) => n),
    )
    for (const ref of refs) expect(await producer.waitFor(ref)).toMatchObject({ state: 'succeeded' })
    const [first, last] = [await nameOf(1), await nameOf(7 + 14)]
    await eventually('all days are made, and no old one is left', async () => {
      const found = await partitions()
      return found.length === 7 + 14 && found[0] === first && found.at(-1) === last
    })
    await eventually('no row is left that need not be kept', async () => {
      return (await count("keep_until < (now() at time zone 'utc')::date")) === 0
    })
    // What was in the default partition went to its own: all but today's, which has none.
    expect(await count("keep_until > (now() at time zone 'utc')::date", 'finished_jobs_default')).toBe(0)
    for (const ref of refs) expect(await producer.get(ref)).toMatchObject({ state: 'succeeded' })
  })
})

describe('a default partition with very many rows', () => {
  it('[X12] keeps them where they are; later days get partitions, and its rows go in pages when their day is over', async () => {
    deployment.skipAudit('jobs of other days are made by hand')
    await dropAll()
    await store(20_000, -5, 7)
    const before = await count()
    await prepareAll()
    expect(await constraints()).toEqual([])
    expect(await count()).toBe(before)
    expect(await partitions()).toEqual(
      await Promise.all([15, 16, 17, 18, 19, 20, 21].map(days => nameOf(days))),
    )
    expect(await endOne()).toBe('finished_jobs_default')
    let steps = 0
    for (let isDone = false; !isDone; steps++) {
      const [step] = await database.rows<{ is_done: boolean }>('select * from longshore.forget_history()')
      isDone = step?.is_done === true
    }
    expect(steps).toBeGreaterThan(5)
    expect(await count("keep_until < (now() at time zone 'utc')::date")).toBe(0)
    expect(await count("keep_until >= (now() at time zone 'utc')::date")).toBe(
      1 + (await count("keep_until >= (now() at time zone 'utc')::date and score > 0 and score <= 20000")),
    )
  })

  it('[X12] a leader goes on where the last one stopped, at any of the steps; jobs end meanwhile', async () => {
    deployment.skipAudit('jobs of other days are made by hand')
    await dropAll()
    await store(20_000, -5, 9)
    await prepare()
    // A constraint that is not checked yet: a job of today still ends, and the retention can be raised.
    expect(await constraints()).toHaveLength(1)
    expect(await endOne()).toBe('finished_jobs_default')
    await database.rows('update longshore.settings set retention_days = 90')
    expect(await constraints()).toEqual([])
    expect(await endOne()).toBe('finished_jobs_default')
    await database.rows('update longshore.settings set retention_days = 7')
    await prepare()
    const [apart] = await constraints()
    // The job that is kept for long stays where it is, and the days before it get their partitions.
    expect(apart?.name).toMatch(/^apart_/)
    await prepareAll()
    expect(await constraints()).toEqual([])
    expect((await partitions()).at(-1)).toBe(await nameOf(7 + 14))
  })

  it('[X12] a row that came before the constraint of days ahead undoes it', async () => {
    deployment.skipAudit('jobs of other days are made by hand')
    await dropAll()
    await store(20_000, -5, 7)
    await prepare()
    const [apart] = await constraints()
    await database.rows(`alter table longshore.finished_jobs_default drop constraint ${apart?.name}`)
    await store(1, 19, 19)
    await database.rows(
      `alter table longshore.finished_jobs_default add constraint ${apart?.name}
         check (keep_until < to_date(substr('${apart?.name}', 7, 8), 'YYYYMMDD')) not valid`,
    )
    await prepare()
    expect(await constraints()).toEqual([])
    await prepareAll()
    expect(await partitions()).toEqual(await Promise.all([15, 16, 17, 18, 20, 21].map(days => nameOf(days))))
  })
})

describe('days', () => {
  it.each(['Pacific/Kiritimati', 'Etc/GMT+12', 'America/New_York', 'Asia/Kathmandu'])(
    '[X12] [X5] are those of UTC in a session of %s',
    async zone => {
      deployment.skipAudit('what ended is emptied')
      const client = await database.connect()
      await client.query(`set timezone = '${zone}'`)
      const day = async () =>
        (
          await database.rows<{ day: string }>("select to_char(now() at time zone 'utc', 'YYYYMMDD') as day")
        )[0]?.day
      const before = await day()
      const { rows: ahead } = await client.query(
        "select to_char(d, 'YYYYMMDD') as day from unnest(longshore.days_ahead(1)) d",
      )
      const { rows: forgotten } = await client.query('select * from longshore.forget_history()')
      await client.query('select longshore.prepare_history()')
      if ((await day()) !== before) return // midnight has passed
      expect(ahead[0].day).toBe(before)
      expect(forgotten[0].is_done).toBe(true)
      expect((await partitions())[0]).toBe(await nameOf(1))
      const ref = await deployment.producer({ tasks: [task] }).enqueue(task, 1)
      const worker = await workByHand(database, ['day'])
      await worker.settle((await worker.claim(1, client)).map(settling), client)
      const [row] = await database.rows<{ name: string }>(
        'select tableoid::regclass::text as name from longshore.finished_jobs where id = $1',
        [ref.id],
      )
      expect(row?.name.replaceAll('"', '')).toBe(`longshore.${await nameOf(7)}`)
    },
  )

  it.each(['2026-03-29', '2026-10-25', '2026-12-31', '2028-02-28'])(
    '[X12] [X5] last until the next one begins by UTC, also around %s in a zone with summer time',
    async day => {
      const client = await database.connect()
      await client.query("set timezone = 'Europe/Berlin'")
      const { rows } = await client.query(
        `select longshore.kept_until($1::date, 1) - $1::date as days,
           (($1::date + 1)::timestamp at time zone 'utc') - ($1::date::timestamp at time zone 'utc') = interval '24 hours' as "isWhole"`,
        [day],
      )
      expect(rows).toEqual([{ days: 1, isWhole: true }])
    },
  )
})
