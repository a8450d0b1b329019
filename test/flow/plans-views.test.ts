/** The views must be quick enough to ask while a hundred thousand jobs are there. */
import { beforeAll, describe, expect, it } from 'vitest'
import { type TestClient, useDatabase } from '../support/database.ts'
import { type PlanNode, startExplaining } from '../support/explain.ts'

const database = useDatabase()

describe('views over 100,000 jobs', () => {
  let client: TestClient
  const plans: PlanNode[] = []
  let group = ''
  let waiting = ''
  let ready = ''

  // Made by hand and all at once: how much is read matters here, not how it came to be.
  beforeAll(async () => {
    await database.rows(
      `insert into longshore.workers (name, queues, tasks, tags, constraint_tags)
       select 'w', '{default}', '{step}', '{default}', '{c:}' from generate_series(1, 10)`,
    )
    const [lane] = await database.rows<{ id: number }>(
      "select longshore.find_lane('default', 'step', 'default', 'c:') as id",
    )
    await database.rows(
      `insert into longshore.groups (id) select gen_random_uuid() from generate_series(1, 500)`,
    )
    const columns = 'id, lane, score, state, max_attempts, payload'
    await database.rows(
      `insert into longshore.jobs (${columns})
       select gen_random_uuid(), $1, longshore.score(0, now()), 'ready', 3, '{}' from generate_series(1, 50000)`,
      [lane?.id],
    )
    await database.rows(
      `with made as (
         insert into longshore.jobs (${columns}, group_id, pending)
         select gen_random_uuid(), $1, longshore.score(0, now()),
           (case when n = 0 then 'ready' else 'waiting' end)::longshore.job_state, 3, '{}', g.id, nullif(least(n, 1), 0)
         from longshore.groups g, generate_series(0, 99) n
         returning id, group_id, state
       )
       insert into longshore.edges (parent, child)
       select p.id, c.id from made p join made c on c.group_id = p.group_id and c.state = 'waiting' where p.state = 'ready'`,
      [lane?.id],
    )
    await database.rows(
      `insert into longshore.finished_jobs (id, score, lease_token, created_at, finished_at, lane, keep_until, state, attempts,
         max_attempts, payload, group_id)
       select gen_random_uuid(), 0, 1, now(), now(), $1, current_date + 7, 'succeeded', 1, 3, '{}', g.id
       from longshore.groups g, generate_series(1, 20)`,
      [lane?.id],
    )
    await database.rows('analyze')
    const [ids] = await database.rows<{ group: string; waiting: string; ready: string }>(
      `select (select id from longshore.groups limit 1) as group,
         (select id from longshore.jobs where state = 'waiting' limit 1) as waiting,
         (select id from longshore.jobs where state = 'ready' and group_id is null limit 1) as ready`,
    )
    group = String(ids?.group)
    waiting = String(ids?.waiting)
    ready = String(ids?.ready)
    client = await database.connect()
    await startExplaining(client, plan => plans.push(plan.Plan))
  }, 120_000)

  /** Rows of these tables that a statement read. */
  async function rowsRead(tables: string[], text: string, values: unknown[] = []): Promise<number> {
    plans.length = 0
    await client.query(text, values)
    let read = 0
    const walk = (node: PlanNode) => {
      if (tables.includes((node['Relation Name'] ?? '').replace(/_(\d+|default)$/, ''))) {
        const removed = node['Rows Removed by Filter'] ?? 0
        read += (node['Actual Rows'] + removed) * node['Actual Loops']
      }
      for (const child of node.Plans ?? []) walk(child)
    }
    expect(plans.length).toBeGreaterThan(0)
    for (const plan of plans) walk(plan)
    return read
  }

  it('[S16] read no more than what they are asked for', async () => {
    const of = ['jobs', 'finished_jobs', 'edges']
    const byId = 'where id = $1'
    expect(await rowsRead(of, `select * from longshore.job_status ${byId}`, [waiting])).toBeLessThan(10)
    expect(await rowsRead(of, `select * from longshore.blocked ${byId}`, [waiting])).toBeLessThan(10)
    expect(await rowsRead(of, `select * from longshore.blocked ${byId}`, [ready])).toBeLessThan(10)
    // Twice its 120 jobs: once for its state, once for the counts.
    expect(await rowsRead(of, `select * from longshore.group_status ${byId}`, [group])).toBeLessThanOrEqual(
      240,
    )
    const byGroup = 'where group_id = $1'
    expect(await rowsRead(of, `select * from longshore.job_status ${byGroup}`, [group])).toBeLessThanOrEqual(
      120,
    )
    expect(await rowsRead(of, `select * from longshore.blocked ${byGroup}`, [group])).toBeLessThan(1000)
    expect(await rowsRead(of, 'select * from longshore.blocked limit 50')).toBeLessThan(60_000)
    // What explains one job reads no others.
    expect(await rowsRead(of, 'select longshore.explain($1)', [waiting])).toBeLessThan(10)
    expect(await rowsRead(of, 'select longshore.explain($1)', [ready])).toBeLessThan(2000)
  })
})
