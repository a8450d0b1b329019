/** Whoever asks whether all is well reads every job a few times, and not every job for each, whatever the planner believes. */
import { beforeAll, describe, expect, it } from 'vitest'
import { auditPostgres } from '../../src/postgres/audit.ts'
import { examine } from '../../src/postgres/examine.ts'
import { QUESTIONS } from '../../src/postgres/questions.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { believeEmpty, onClient, type Plan, type PlanNode, startExplaining } from '../support/explain.ts'

const database = useDatabase()
const GROUPS = 500
/** Half of them have ended; each waits for the one before it. */
const JOBS = 20 * GROUPS
const PAGE = JOBS / 8
const TABLES = ['jobs', 'finished_jobs', 'edges', 'groups', 'workflows', 'lanes', 'lane_heads']

let client: TestClient
const plans: Plan[] = []

// By hand: how much is read matters here, not how it came to be.
beforeAll(async () => {
  client = await database.connect()
  for (const table of TABLES)
    if (table !== 'finished_jobs')
      await client.query(`alter table longshore.${table} set (autovacuum_enabled = false)`)
  await client.query(
    `insert into longshore.lanes (queue, task, tag, constraint_tag) select 'default', 'task ' || n, 'default', 'c:'
     from generate_series(1, 30) n`,
  )
  await client.query(
    `insert into longshore.groups (id, name) select gen_random_uuid(), lpad('', 200, '-') from generate_series(1, ${GROUPS})`,
  )
  await client.query(
    `insert into longshore.workflows (key) select lpad(n::text, 200, '0') from generate_series(1, ${GROUPS}) n`,
  )
  await client.query(
    `create table planned as
     select gen_random_uuid() as id, g.id as group_id, no, (dense_rank() over (order by g.id))::int as n
     from longshore.groups g, generate_series(1, 20) no`,
  )
  await client.query(
    `insert into longshore.edges (parent, child)
     select a.id, b.id from planned a join planned b on b.group_id = a.group_id and b.no = a.no + 1`,
  )
  await client.query(
    `insert into longshore.finished_jobs (id, score, lease_token, created_at, finished_at, lane, keep_until, state, attempts,
       max_attempts, payload, group_id, worker_id, started_at)
     select p.id, 0, 0, now(), now(), 1 + p.no, current_date + 7, 'succeeded', 1, 3, '{}', p.group_id, 1, now()
     from planned p where p.no <= 10`,
  )
  await client.query(
    `insert into longshore.jobs (id, lane, score, state, max_attempts, payload, group_id, pending, workflow, workflow_seq, has_turn)
     select p.id, 1 + p.no, 0, 'waiting', 3, '{}', p.group_id, 2, w.id, p.no, p.no = 11
     from planned p join longshore.workflows w on w.key = lpad(p.n::text, 200, '0') where p.no > 10`,
  )
  // A failure must not take for ever.
  await client.query("set statement_timeout = '20s'")
  await startExplaining(client, plan => plans.push(plan))
}, 60_000)

/** What all nodes of a plan have had in their hands. */
function rowsRead({ Plan: plan }: Plan): number {
  let read = 0
  const walk = (node: PlanNode) => {
    const removed = (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Join Filter'] ?? 0)
    read += (node['Actual Rows'] + removed) * node['Actual Loops']
    for (const child of node.Plans ?? []) walk(child)
  }
  walk(plan)
  return read
}

const WAYS: Record<string, () => Promise<unknown>> = {
  'the audit, all at once': () => auditPostgres(client),
  'the doctor, page by page': () =>
    examine(onClient(client), 'longshore', {
      pageSize: PAGE,
      graceMs: 10_000,
      pauseMs: 0,
      looks: 1,
      onPage: () => undefined,
      onFinding: async () => undefined,
      onUnanswered: ({ sql }, why) => {
        throw new Error(`${why}: ${sql}`)
      },
    }),
}

describe.each(['nothing', ...TABLES])('analysed when %s was empty', believed => {
  beforeAll(async () => {
    await client.query('analyze')
    await believeEmpty(client, TABLES.includes(believed) ? [believed] : [])
  })

  it.each(Object.entries(WAYS))('%s: no question looks at all jobs for each', async (_, ask) => {
    plans.length = 0
    await ask()
    expect(plans.length).toBeGreaterThan(QUESTIONS.length / 2)
    const tooMuch = plans.filter(plan => rowsRead(plan) > 20 * JOBS)
    expect(tooMuch.map(plan => `${rowsRead(plan)} rows: ${plan['Query Text']}`)).toEqual([])
  })
})
