/** The look at a whole deployment must stay cheap, whatever there is and whatever the planner believes. */
import { beforeAll, describe, expect, it } from 'vitest'
import { readOverview } from '../../src/postgres/read-overview.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { believeEmpty, onClient, type Plan, type PlanNode, startExplaining } from '../support/explain.ts'

const database = useDatabase()

const READY = 200_000
const LANES = 8000
const KEYS = 1000

let client: TestClient
const plans: Plan[] = []

// Made by hand and all at once: how much is read matters here, not how it came to be.
async function fill(): Promise<void> {
  await database.rows('alter table longshore.jobs set (autovacuum_enabled = false)')
  await database.rows(
    `insert into longshore.lanes (queue, task, tag, constraint_tag)
     select (array['one', 'two', 'many'])[least(n, 3)], 'task', 'default', 'c:' from generate_series(1, $1) n`,
    [LANES],
  )
  const columns = 'id, lane, score, state, max_attempts, payload'
  // Half of them in one lane; the rest over all, in two priorities, of which the lower one has the older jobs.
  await database.rows(
    `insert into longshore.jobs (${columns})
     select gen_random_uuid(), case when n % 2 = 0 then 1 else 2 + (n / 2) % ($2 - 1) end,
       longshore.score(n % 4 / 2, now() - (1 - n % 4 / 2) * interval '1 hour'), 'ready', 3, '{}' from generate_series(1, $1) n`,
    [READY, LANES],
  )
  await database.rows(
    `insert into longshore.jobs (${columns})
     select gen_random_uuid(), 2, longshore.score(0, now() + n * interval '1 second'), 'scheduled', 3, '{}'
     from generate_series(1, 50000) n`,
  )
  await database.rows(
    `insert into longshore.jobs (${columns}, worker_id, started_at)
     select gen_random_uuid(), 1, 0, 'running', 3, '{}', 1, now() from generate_series(1, 5000)`,
  )
  await database.rows(
    'insert into longshore.groups (id) select gen_random_uuid() from generate_series(1, 3000)',
  )
  await database.rows(
    `insert into longshore.groups (id, end_state, finished_at)
     select gen_random_uuid(), 'succeeded', now() from generate_series(1, 20000)`,
  )
  await database.rows(
    `insert into longshore.jobs (${columns}, group_id, pending)
     select gen_random_uuid(), 2, 0, 'waiting', 3, '{}', g.id, 1
     from longshore.groups g, generate_series(1, 10) where g.finished_at is null`,
  )
  await database.rows(
    `insert into longshore.finished_jobs (id, score, lease_token, created_at, finished_at, lane, keep_until, state, attempts,
       max_attempts, payload)
     select gen_random_uuid(), 0, 1, now(), now(), 1, current_date + 7, 'succeeded', 1, 3, '{}' from generate_series(1, 50000)`,
  )
  await database.rows(
    `insert into longshore.limits (task, key, capacity) select 'task', n::text, 3 from generate_series(1, $1) n`,
    [KEYS],
  )
  await database.rows(
    `insert into longshore.slot_groups (limit_id, number, capacity, used)
     select l.id, n, 1, least(1, l.id % 3) from longshore.limits l, generate_series(0, 2) n`,
  )
  await database.rows(
    `insert into longshore.workers (name, queues, tasks, tags, constraint_tags, expires_at, max_capacity, available_capacity)
     select 'w' || n, '{one}', '{task}', '{default}', '{c:}', now() + interval '1 hour', 50, 25 from generate_series(1, 200) n`,
  )
}

function rowsRead(tables: readonly string[]): number {
  let read = 0
  const walk = (node: PlanNode) => {
    if (tables.includes((node['Relation Name'] ?? '').replace(/_(\d+|default)$/, ''))) {
      const removed = (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0)
      read += (node['Actual Rows'] + removed) * node['Actual Loops']
    }
    for (const child of node.Plans ?? []) walk(child)
  }
  for (const { Plan: plan } of plans) walk(plan)
  return read
}

function scansOf(table: string): string[] {
  const found: string[] = []
  const walk = (node: PlanNode) => {
    if (node['Relation Name'] === table) found.push(node['Node Type'])
    for (const child of node.Plans ?? []) walk(child)
  }
  for (const { Plan: plan } of plans) walk(plan)
  return found
}

describe.each(['analysed while empty', 'analysed now'])(`${READY} ready jobs in ${LANES} lanes, %s`, when => {
  beforeAll(async () => {
    if (client) return void (await database.rows('analyze'))
    await fill()
    client = await database.connect()
    const tables = ['jobs', 'finished_jobs', 'groups', 'lanes', 'limits', 'slot_groups', 'workers']
    await believeEmpty(client, tables)
    await startExplaining(client, plan => plans.push(plan))
  }, 120_000)

  it('[W12] the overview reaches jobs through indexes only, and reads about as many as it counts', async () => {
    plans.length = 0
    const overview = await readOverview(onClient(client), 'longshore')
    expect(scansOf('jobs').length).toBeGreaterThan(4)
    for (const scan of scansOf('jobs')) expect(scan).toMatch(/^Index (Only )?Scan$/)
    // Two steps for each lane; ready jobs of three queues; scheduled ones; those that wait, in groups and in workflows; ten groups.
    expect(rowsRead(['jobs'])).toBeLessThan(2 * LANES + 3 * 10_001 + 10_001 + 2 * 10_001 + 10 * 1001)
    expect(rowsRead(['groups'])).toBeLessThan(2 * 1001 + 100)
    expect(rowsRead(['finished_jobs'])).toBe(0)
    const queues = new Map(overview.queues.map(queue => [queue.name, queue]))
    expect(queues.get('one')).toMatchObject({
      ready: { count: 10_000, is: 'atLeast' },
      running: { count: 5000, is: 'about' },
    })
    expect(queues.get('two')).toMatchObject({
      ready: { count: Math.ceil(READY / 2 / (LANES - 1)), is: 'exact' },
      scheduled: { count: 10_000, is: 'atLeast' },
      waiting: { count: 10_000, is: 'atLeast' },
    })
    // What is less urgent is older here, and counts nevertheless.
    expect(queues.get('many')).toMatchObject({ ready: { count: 10_000, is: 'atLeast' } })
    expect(queues.get('one')?.oldestReadyMs).toBeGreaterThanOrEqual(3_600_000)
    expect(overview.groups.unfinished).toEqual({ count: 1000, is: 'atLeast' })
    expect(overview.groups.shown).toHaveLength(10)
    expect(overview.limits).toHaveLength(20)
    expect(overview.limitCount.is).toBe('exact')
    expect(overview.workers).toHaveLength(200)
    if (when === 'analysed now') expect(overview.readyEstimate).toBeGreaterThan(READY * 0.9)
  })
})
