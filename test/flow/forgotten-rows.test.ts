/** What was noted for a while and is not needed any more goes, in short pages: waits, runs that have ended, and workers. */
import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { useGuards } from '../support/guards.ts'
import { eventually } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const { begin } = useGuards(database, deployment)
const task = defineTask<number>({ name: 'task' })
const PAGE = 5000
const TABLES = ['awaited', 'past_runs', 'past_workers', 'limit_waiters']

const count = async (table: string) =>
  (await database.rows<{ rows: number }>(`select count(*)::int as rows from longshore.${table}`))[0]?.rows
const clear = () => database.rows(TABLES.map(table => `delete from longshore.${table};`).join(' '))
/** Half of them have expired. */
const fill = async (rows: number) => {
  await clear()
  await database.rows(
    `insert into longshore.awaited (job_id, waiter, expires_at)
     select case when n % 100 = 0 then '00000000-0000-0000-0000-000000000000' else gen_random_uuid() end, 'w' || n,
       now() + (n / 100 % 2 - 0.5) * interval '1 hour' from generate_series(1, $1::int) n`,
    [rows],
  )
  await database.rows(
    `insert into longshore.past_runs (job_id, lease_token, worker_id, ended_at)
     select gen_random_uuid(), n, 1, now() - n % 2 * interval '2 days' from generate_series(1, $1::int) n`,
    [rows],
  )
  await database.rows(
    `insert into longshore.past_workers (id, ended_at)
     select n, now() - n % 2 * interval '2 days' from generate_series(1, 100) n`,
  )
}

interface Page {
  after_job: string | null
  after_waiter: string | null
  has_more: boolean
}
const forget = async (last?: Page) =>
  (
    await database.rows<Page>(
      'select * from longshore.forget_expired(p_after_job => $1, p_after_waiter => $2)',
      [last?.after_job ?? null, last?.after_waiter ?? null],
    )
  )[0] as Page

describe('what has expired', () => {
  it('[X12] is forgotten a page at a time; the rest stays', async () => {
    await fill(4 * PAGE)
    const pages = [await forget()]
    expect(await count('past_runs')).toBe(3 * PAGE)
    while (pages.at(-1)?.has_more) pages.push(await forget(pages.at(-1)))
    expect(pages).toHaveLength(5)
    expect(await Promise.all(TABLES.map(count))).toEqual([2 * PAGE, 2 * PAGE, 50, 0])
    expect(
      await database.rows(
        `select from longshore.awaited where expires_at < now()
         union all select from longshore.past_runs where ended_at < now() - interval '1 day'`,
      ),
    ).toEqual([])
    await clear()
  })

  it('[X12] and is held by a transaction is passed over: a wait that is made longer meanwhile stays', async () => {
    await fill(200)
    const [expired] = await database.rows<{ job_id: string; waiter: string }>(
      'select job_id, waiter from longshore.awaited where expires_at < now() limit 1',
    )
    const waits = await begin()
    await waits.query(
      "update longshore.awaited set expires_at = now() + interval '1 hour' where job_id = $1 and waiter = $2",
      [expired?.job_id, expired?.waiter],
    )
    expect(await forget()).toMatchObject({ has_more: false })
    await waits.query('commit')
    expect(await count('awaited')).toBe(101)
    await clear()
  })

  it('[X12] is forgotten by the leader', async () => {
    await fill(3 * PAGE)
    await deployment.worker({ handlers: [task.handle(() => undefined)] })
    await eventually('it is forgotten', async () => {
      const rows = await database.rows('select from longshore.awaited where expires_at < now() limit 1')
      return rows.length === 0 && (await count('past_runs')) === (3 * PAGE) / 2
    })
    await clear()
  })
})

describe('the rows of workers', () => {
  it('[X12] go when what they held is rescued, drained or not; then nothing tells of them but a row for a day', async () => {
    await clear()
    await deployment.producer({ tasks: [task] }).enqueueMany(task, [1, 2, 3])
    const workers = [
      await workByHand(database, ['task']),
      await workByHand(database, ['task']),
      await workByHand(database, ['task']),
    ]
    expect(await workers[0]?.claim(1)).toHaveLength(1)
    expect(await workers[1]?.claim(1)).toHaveLength(1)
    await database.rows('update longshore.workers set drained_at = now() where id >= $1', [workers[1]?.id])
    await database.rows("update longshore.workers set expires_at = now() - interval '1 second'")
    const locked = await begin()
    await locked.query('select from longshore.jobs where worker_id = $1 for update', [workers[0]?.id])
    const gone = await database.rows<{ worker_id: number; is_gone: boolean }>(
      'select worker_id, is_gone from longshore.rescue(3600000, 1000)',
    )
    // What it holds is locked by another transaction: its row stays for the next call.
    expect(gone.map(({ is_gone }) => is_gone)).toEqual([false, true, true])
    expect(await count('workers')).toBe(1)
    await locked.query('commit')
    await database.rows('select longshore.rescue(3600000, 1000)')
    expect(await count('workers')).toBe(0)
    expect(await count('past_workers')).toBe(3)
    await database.rows("update longshore.past_workers set ended_at = now() - interval '25 hours'")
    await forget()
    expect(await count('past_workers')).toBe(0)
    expect(await database.rows("select from longshore.jobs where state <> 'ready'")).toEqual([])
  })
})
