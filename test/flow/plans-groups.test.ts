/** As `plans.test.ts`, for groups: whatever the planner believes, nothing reads more than the groups that it is about. */
import { beforeAll, describe, expect, it } from 'vitest'
import { newJobId } from '../../src/index.ts'
import { claimedRows } from '../support/by-hand.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { believeEmpty, explained, type PlanNode, startExplaining } from '../support/explain.ts'

const database = useDatabase()
const GROUPS = 10_000
const CHILDREN = 9
const BATCH = 100
const TABLES = ['jobs', 'edges', 'groups', 'finished_jobs', 'awaited', 'lanes', 'workers']

let client: TestClient
let plans: PlanNode[]
let workerId: number

beforeAll(async () => {
  client = await database.connect()
  for (const table of TABLES) {
    if (table !== 'finished_jobs')
      await client.query(`alter table longshore.${table} set (autovacuum_enabled = false)`)
  }
  const { rows } = await client.query(
    "select longshore.find_lane('default', 'task', 'default', 'c:') as lane",
  )
  const lane = rows[0].lane as number
  const { rows: workers } = await client.query(
    `insert into longshore.workers (name, queues, tasks, tags, constraint_tags)
     values ('w', '{default}', '{task}', '{default}', '{c:}') returning id`,
  )
  workerId = workers[0].id as number
  // In each group one job that is ready, and some that run after it; and ten that have failed.
  await client.query(`create table made as
    select n, longshore.new_id() as group_id, longshore.new_id() as parent from generate_series(1, ${GROUPS}) n`)
  await client.query('insert into longshore.groups (id) select group_id from made order by n')
  await client.query(
    `insert into longshore.jobs (id, lane, score, state, max_attempts, payload, group_id)
     select parent, $1, longshore.score(0, now()), 'ready', 3, '{}', group_id from made order by n`,
    [lane],
  )
  await client.query(`create table children as
    select longshore.new_id() as id, m.parent, m.group_id from made m, generate_series(1, ${CHILDREN})`)
  await client.query(
    `insert into longshore.jobs (id, lane, score, state, max_attempts, payload, group_id, pending)
     select id, $1, longshore.score(0, now()), 'waiting', 3, '{}', group_id, 1 from children`,
    [lane],
  )
  await client.query('insert into longshore.edges (parent, child) select parent, id from children')
  await client.query(
    `insert into longshore.finished_jobs (id, score, lease_token, created_at, finished_at, lane, keep_until, state, attempts,
       max_attempts, payload, group_id)
     select longshore.new_id(), 0, 1, now(), now(), $1, (now() at time zone 'utc')::date + 7, 'failed', 1, 3, '{}', group_id
     from made, generate_series(1, 10)`,
    [lane],
  )
  await believeEmpty(client, TABLES)
  await startExplaining(client, plan => plans.push(plan.Plan))
}, 120_000)

const readBy = (node: PlanNode) =>
  (node['Actual Rows'] +
    (node['Rows Removed by Filter'] ?? 0) +
    (node['Rows Removed by Index Recheck'] ?? 0)) *
  node['Actual Loops']

/** No statement reads one of the tables as a whole, nor more than so many rows of it. */
function expectBounded(most: number): void {
  const seen = new Set<string>()
  const walk = (node: PlanNode) => {
    const relation = node['Relation Name'] ?? ''
    if (/^(jobs|edges|groups|finished_jobs.*)$/.test(relation) && node['Node Type'].endsWith('Scan')) {
      seen.add(relation)
      // Days without history.
      if (relation.startsWith('finished_jobs') && readBy(node) === 0) return
      const read = readBy(node)
      expect({ relation, type: node['Node Type'], isBounded: read <= most, read }).toEqual({
        relation,
        type: expect.stringMatching(
          /^(Index Scan|Index Only Scan|Bitmap Heap Scan|Tid Scan|Tid Range Scan)$/,
        ),
        isBounded: true,
        read,
      })
    }
    for (const child of node.Plans ?? []) walk(child)
  }
  for (const plan of plans) walk(plan)
  expect(seen.size).toBeGreaterThan(0)
}

const call = async (text: string, values: unknown[]) => {
  plans = []
  const { rows } = await client.query(text, values)
  await client.query('select 1') // a statement is told of when the next one begins
  return rows as Record<string, unknown>[]
}

const claim = async (jobs: number) => {
  const claimed = await call(claimedRows('select * from longshore.claim($1, $2)'), [workerId, jobs])
  expect(claimed).toHaveLength(jobs)
  return claimed.sort((a, b) => (String(a['id']) < String(b['id']) ? -1 : 1))
}

const groupsOf = async (jobs: Record<string, unknown>[]) =>
  (
    await client.query('select group_id from longshore.jobs where id = any ($1) order by 1', [
      jobs.map(job => job['id']),
    ])
  ).rows.map(row => row.group_id as string)

describe.each(['force_generic_plan', 'force_custom_plan'])(
  'analysed while empty, then 100,000 jobs, %s',
  mode => {
    it('[S3] a settle passes on to the dependents of its jobs', () =>
      explained(client, mode, async () => {
        const claimed = await claim(BATCH)
        const settle = [workerId, claimed.map(job => job['id']), claimed.map(job => job['lease_token'])]
        const ready = await call(
          "select * from longshore.settle($1, $2, $3, null, null) where answer = 'ready'",
          settle,
        )
        expect(ready).toHaveLength(BATCH * CHILDREN)
        expectBounded(BATCH * (CHILDREN + 1))
        await call('select * from longshore.settle($1, $2, $3, null, null)', settle)
        expectBounded(BATCH)
      }))

    it('[S4] a failure ends its dependents', () =>
      explained(client, mode, async () => {
        const others = (await claim(10)).map(job => ({
          id: job['id'],
          token: job['lease_token'],
          outcome: 'failed',
        }))
        await call("select * from longshore.settle($1, '{}', '{}', null, $2)", [
          workerId,
          JSON.stringify(others),
        ])
        expectBounded(CHILDREN + 1)
        const { rows } = await client.query(
          "select count(*)::int as n from longshore.finished_jobs where state = 'dependency_failed'",
        )
        expect(rows[0].n).toBe(10 * CHILDREN)
      }))

    it('[S2] jobs are added after others, of which some have ended', () =>
      explained(client, mode, async () => {
        const claimed = await claim(1)
        const [group] = await groupsOf(claimed)
        const ids = Array.from({ length: BATCH }, () => newJobId())
        const { rows } = await client.query(
          `select id from longshore.jobs where group_id = $1
         union all select id from longshore.finished_jobs where group_id = $1`,
          [group],
        )
        const parents = rows.map(row => row.id as string)
        const shape = {
          queue: 'default',
          task: 'task',
          tag: 'default',
          constraintTag: 'c:',
          maxAttempts: 1,
          priority: 0,
        }
        const edges = ids.flatMap((_, at) => parents.map(parent => ({ child: at + 1, parent })))
        const answer = await call(
          'select longshore.add_to_group($1, null, false, true, $2, $3, null, $4, null, null, $5, $6, $7, $8) as answer',
          [
            group,
            JSON.stringify([shape]),
            ids,
            ids.map(() => '{}').join('\n'),
            edges.map(edge => edge.child),
            edges.map(edge => edge.parent),
            edges.map(() => 'fail'),
            parents,
          ],
        )
        expect(answer).toEqual([{ answer: 'added' }])
        // All of them end at once: one of their parents has failed.
        expectBounded(ids.length * parents.length)
      }))

    it('[S5] [S13] groups are closed, swept and cancelled by their own jobs', () =>
      explained(client, mode, async () => {
        const groups = await groupsOf(await claim(BATCH))
        expect(await call('select * from longshore.close_groups($1)', [groups])).toEqual([])
        expectBounded(BATCH)
        await client.query('delete from longshore.jobs where group_id = any ($1)', [groups])
        expect(await call('select * from longshore.close_groups($1)', [groups])).toHaveLength(BATCH)
        // All of them in one statement: the ten that have ended of each are counted.
        expectBounded(BATCH * 10)
        const [last] = await call('select longshore.sweep_groups($1, 1000) as last', [groups.at(-1)])
        expect(last?.['last']).toEqual(expect.any(String))
        expectBounded(1000)
        expect(await call('select longshore.cancel_group($1) as answer', [last?.['last']])).toEqual([
          { answer: 'cancelled' },
        ])
        expectBounded(CHILDREN + 11)
        // A person's query goes by the statistics, unlike our functions.
        await client.query('analyze longshore.groups')
        await call('select * from longshore.group_status where id = any ($1)', [groups])
        expectBounded(BATCH * (CHILDREN + 11))
      }))

    it('[X12] a page of a day that is over reads its own rows, groups and edges', () =>
      explained(client, mode, async () => {
        const { rows } = await client.query(
          `select relname as name, max(keep_until) - 7 as today
           from longshore.finished_jobs f join pg_class c on c.oid = f.tableoid group by 1`,
        )
        const page = () =>
          call("select longshore.forget_page('finished_jobs', $1, $2, 1000) as why", [
            rows[0].name,
            rows[0].today,
          ])
        await page()
        expect(await page()).toEqual([{ why: null }])
        expectBounded(1000)
        expect(await page()).toEqual([{ why: null }])
        // The rest of the page before is read once more.
        expectBounded(2000)
        await client.query('update longshore.groups set end_state = $1, finished_at = $2', [
          'failed',
          '2020-01-01',
        ])
        await call('select * from longshore.forget_history()', [])
        expectBounded(1000)
      }))

    it('[S13] a job with dependents is cancelled', () =>
      explained(client, mode, async () => {
        const [job] = await claim(1)
        await client.query(
          "update longshore.jobs set state = 'ready', worker_id = null, started_at = null where id = $1",
          [job?.['id']],
        )
        expect(await call('select answer from longshore.cancel(array[$1]::uuid[])', [job?.['id']])).toEqual([
          { answer: 'cancelled' },
        ])
        expectBounded(CHILDREN + 1)
      }))

    it('a handler reads what its job ran after', () =>
      explained(client, mode, async () => {
        const [job] = await claim(1)
        const { rows } = await client.query('select child from longshore.edges where parent = $1 limit 1', [
          job?.['id'],
        ])
        await call('select * from longshore.settle($1, $2, $3, null, null)', [
          workerId,
          [job?.['id']],
          [job?.['lease_token']],
        ])
        await client.query(
          "update longshore.jobs set state = 'running', worker_id = $2, lease_token = 7, started_at = now() where id = $1",
          [rows[0].child, workerId],
        )
        const { readParents } = await import('../../src/postgres/read-parents.ts')
        plans = []
        const db = { query: (text: string, values?: unknown[]) => client.query(text, values) }
        const read = await readParents(
          db,
          'longshore',
          { id: workerId, secret: null },
          { id: rows[0].child, leaseToken: '7' },
          null,
          '00000000-0000-0000-0000-000000000000',
          1000,
        )
        expect(read).toHaveLength(1)
        await client.query('select 1')
        expectBounded(1)
      }))
  },
)
