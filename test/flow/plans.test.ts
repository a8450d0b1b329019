/**
 * A queue is often analysed while it is empty and then bursts. The plans of the hot functions must not depend on what
 * the planner believes then: every statement must reach `jobs` through an index and touch no more rows than it needs.
 */
import { beforeAll, describe, expect, it } from 'vitest'
import { newJobId } from '../../src/index.ts'
import { claimedRows } from '../support/by-hand.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { believeEmpty, explained, type PlanNode, startExplaining } from '../support/explain.ts'

const database = useDatabase()
const ROWS = 100_000
const BATCH = 200

let client: TestClient
let plans: PlanNode[]
let workerId: number
let manyLanesWorkerId: number
const lanes: number[] = []

beforeAll(async () => {
  client = await database.connect()
  await client.query('alter table longshore.jobs set (autovacuum_enabled = false)')
  const makeLane = async (task: string) => {
    const { rows } = await client.query(
      "select longshore.find_lane('default', $1, 'default', 'c:') as lane",
      [task],
    )
    return rows[0].lane as number
  }
  for (let n = 0; n < 5; n++) lanes.push(await makeLane(`task-${n}`))
  const register = async (tasks: string[]) => {
    const { rows } = await client.query(
      `insert into longshore.workers (name, queues, tasks, tags, constraint_tags)
       values ('w', '{default}', $1, '{default}', '{c:}') returning id`,
      [tasks],
    )
    return rows[0].id as number
  }
  workerId = await register(['task-0'])
  manyLanesWorkerId = await register(['task-1', 'task-2', 'task-3', 'task-4'])
  await client.query(
    `insert into longshore.jobs (id, lane, score, state, max_attempts, payload)
     select longshore.new_id(), $1::int + (n % 5), longshore.score(0, now()), 'ready', 3, '{}'
     from generate_series(1, $2) n`,
    [lanes[0], ROWS],
  )
  await client.query(
    `insert into longshore.jobs (id, lane, score, state, max_attempts, payload)
     select longshore.new_id(), $1, longshore.score(0, now() + n * interval '1 minute' - interval '50 minutes'),
       'scheduled', 3, '{}'
     from generate_series(1, $2) n`,
    [lanes[0], ROWS / 10],
  )
  await believeEmpty(client, ['jobs', 'lanes', 'workers', 'finished_jobs', 'awaited', 'past_runs'])
  await startExplaining(client, plan => plans.push(plan.Plan))
}, 120_000)

/** Every node that reads the relation, in all plans seen. */
function readsOf(relation: string): PlanNode[] {
  const found: PlanNode[] = []
  const walk = (node: PlanNode) => {
    if (node['Relation Name'] === relation && node['Node Type'].endsWith('Scan')) found.push(node)
    for (const child of node.Plans ?? []) walk(child)
  }
  for (const plan of plans) walk(plan)
  return found
}

function expectBounded(most: number): void {
  const reads = readsOf('jobs')
  for (const node of reads) {
    expect(node['Node Type']).toMatch(/^(Index Scan|Index Only Scan|Bitmap Heap Scan|Tid Scan)$/)
    const read = (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops']
    expect(read).toBeLessThanOrEqual(most)
  }
}

const CLAIM = claimedRows('select * from longshore.claim($1, $2)')
const call = async (text: string, values: unknown[]) => {
  plans = []
  return (await client.query(text, values)).rows as Record<string, unknown>[]
}

describe.each(['force_generic_plan', 'force_custom_plan'])(
  'analysed while empty, then 100,000 rows, %s',
  mode => {
    it('[C10] claim from one lane reads its head through the ready index, whatever stands in the lanes of others', () =>
      explained(client, mode, async () => {
        expect(await call(CLAIM, [workerId, BATCH])).toHaveLength(BATCH)
        expect(readsOf('jobs').map(node => node['Index Name'])).toContain('jobs_ready')
        expectBounded(BATCH)
      }))

    it('[C10] the usual claim reads what it hands over, from the head or from where the last one ended', () =>
      explained(client, mode, async () => {
        const claim = async (from: string | null) => {
          const [row] = await call(
            "select * from longshore.settle_and_claim($1, '{}', '{}', null, null, $2, p_from => $3)",
            [workerId, BATCH, from],
          )
          expect(String(row?.['ids']).split(',')).toHaveLength(BATCH)
          expect(readsOf('jobs').map(node => node['Index Name'])).toContain('jobs_ready')
          expectBounded(BATCH)
          return String(row?.['scores']).split(',').at(-1) as string
        }
        // What the claims before it have left behind is not read again.
        await claim(await claim(null))
      }))

    it('[X12] a look for jobs before a score reads the head of each lane', () =>
      explained(client, mode, async () => {
        const [row] = await call('select longshore.best_before($1, $2) as best', [workerId, 2n ** 62n])
        expect(row?.['best']).not.toBeNull()
        expect(readsOf('jobs').map(node => node['Index Name'])).toEqual(['jobs_ready'])
        expectBounded(1)
      }))

    it('the usual claim of jobs that are named goes by the primary key', () =>
      explained(client, mode, async () => {
        const named = await database.rows<{ id: string }>(
          "select id from longshore.jobs where lane = $1 and state = 'ready' order by id desc limit $2",
          [lanes[0], BATCH],
        )
        const ids = named.map(({ id }) => id)
        const [row] = await call(
          "select * from longshore.settle_and_claim($1, '{}', '{}', null, null, $2, $3, $4)",
          [workerId, BATCH, ids, [lanes[0]]],
        )
        expect(String(row?.['ids']).split(',').sort()).toEqual(ids.sort())
        expect(readsOf('jobs').map(node => node['Index Name'])).toContain('jobs_pkey')
        expectBounded(BATCH)
      }))

    it('claim from several lanes reads the head of each', () =>
      explained(client, mode, async () => {
        expect(await call(CLAIM, [manyLanesWorkerId, BATCH])).toHaveLength(BATCH)
        expect(readsOf('jobs').map(node => node['Index Name'])).toContain('jobs_ready')
        expectBounded(BATCH * 4)
      }))

    it('settle goes by the primary key', () =>
      explained(client, mode, async () => {
        const claimed = await call(CLAIM, [workerId, BATCH])
        const sorted = claimed.sort((a, b) => (String(a['id']) < String(b['id']) ? -1 : 1))
        const ids = sorted.map(job => job['id'])
        const tokens = sorted.map(job => job['lease_token'])
        const results = Object.fromEntries(ids.slice(0, 50).map(id => [String(id), { ok: true }]))
        expect(
          await call('select * from longshore.settle($1, $2, $3, $4, null)', [
            workerId,
            ids,
            tokens,
            results,
          ]),
        ).toEqual([])
        expect(readsOf('jobs').length).toBeGreaterThan(0)
        expectBounded(BATCH)
        // Repeated, and in part stale: the slow path.
        expect(
          await call('select * from longshore.settle($1, $2, $3, $4, null)', [workerId, ids, tokens, null]),
        ).toEqual([])
        expectBounded(BATCH)
      }))

    it('settle of failures, retries and releases goes by the primary key', () =>
      explained(client, mode, async () => {
        const claimed = await call(CLAIM, [workerId, 30])
        const others = claimed.map((job, n) => ({
          id: job['id'],
          token: job['lease_token'],
          outcome: ['failed', 'retry', 'released'][n % 3],
          delayMs: 1000,
        }))
        expect(
          await call("select * from longshore.settle($1, '{}', '{}', null, $2) where answer <> 'ready'", [
            workerId,
            JSON.stringify(others),
          ]),
        ).toEqual([])
        expect(readsOf('jobs').length).toBeGreaterThan(0)
        expectBounded(1)
      }))

    it('a checked enqueue goes by the primary key', () =>
      explained(client, mode, async () => {
        const shape = {
          queue: 'default',
          task: 'task-0',
          tag: 'default',
          constraintTag: 'c:',
          maxAttempts: 1,
          priority: 0,
        }
        const ids = Array.from({ length: BATCH }, () => newJobId())
        const payloads = ids.map(() => '{}').join('\n')
        await call('select longshore.enqueue_jobs($1, $2, null, $3, true)', [
          JSON.stringify([shape]),
          ids,
          payloads,
        ])
        expect(readsOf('jobs').length).toBeGreaterThan(0)
        expectBounded(BATCH)
        await call('select longshore.enqueue_jobs($1, $2, null, $3, true)', [
          JSON.stringify([shape]),
          ids,
          payloads,
        ])
        expectBounded(BATCH)
      }))

    it('[C10] a claim of jobs that Redis named goes by the primary key', () =>
      explained(client, mode, async () => {
        const named = await database.rows<Record<string, unknown>>(
          "select id from longshore.jobs where lane = $1 and state = 'ready' order by id desc limit $2",
          [lanes[0], BATCH],
        )
        const claimed = await call(claimedRows('select * from longshore.claim($1, 1, $2, $3)'), [
          workerId,
          named.map(job => job['id']),
          [lanes[0]],
        ])
        expect(claimed).toHaveLength(BATCH)
        expect(readsOf('jobs').length).toBeGreaterThan(0)
        expectBounded(BATCH)
      }))

    it('the relay reads what the outbox names by the primary key', () =>
      explained(client, mode, async () => {
        const named = await database.rows<Record<string, unknown>>(
          "select array_agg(id) as ids from (select id from longshore.jobs where state = 'ready' order by id desc limit $1) j",
          [BATCH],
        )
        await database.rows('insert into longshore.outbox (jobs) values ($1)', [named[0]?.['ids']])
        await database.rows("select longshore.lead('plans', 60000, 2)")
        const [read] = await call(
          "select * from longshore.relay_read('plans', '{}', '{}', '{}', 0, 100, '{}', '{}')",
          [],
        )
        expect(String(read?.['ready']).split(',')).toHaveLength(BATCH)
        expectBounded(BATCH)
        await database.rows('delete from longshore.outbox')
      }))

    it('[D15] the relay reads on in a lane through the ready index', () =>
      explained(client, mode, async () => {
        const [middle] = await database.rows<Record<string, unknown>>(
          "select score, id from longshore.jobs where lane = $1 and state = 'ready' order by score, id offset 5000 limit 1",
          [lanes[1]],
        )
        const [read] = await call('select * from longshore.read_lane($1, $2, $3, $4)', [
          lanes[1],
          middle?.['score'],
          middle?.['id'],
          BATCH,
        ])
        expect(String(read?.['ids']).split(',')).toHaveLength(BATCH)
        expect(readsOf('jobs').map(node => node['Index Name'])).toContain('jobs_ready')
        expectBounded(BATCH)
      }))

    it('[X12] a round of forgetting looks at one ready job of each lane, and at a page of jobs by their key', () =>
      explained(client, mode, async () => {
        const forget = async () =>
          (await call('select * from longshore.forget_lanes(p_page => $1)', [BATCH / 2]))[0]?.['step']
        await client.query("update longshore.forgetting set step = 'resting', next_at = '-infinity'")
        await client.query("select longshore.make_lane('default', 'without jobs', 'default', 'c:')")
        expect(await forget()).toBe('waiting')
        expect(readsOf('jobs').map(node => node['Index Name'])).toEqual(['jobs_ready'])
        expectBounded(lanes.length + 1)
        await client.query("update longshore.forgetting set step = 'clearing'")
        for (let page = 0; page < 2; page++) {
          expect(await forget()).toBe('clearing')
          expect(new Set(readsOf('jobs').map(node => node['Index Name']))).toEqual(new Set(['jobs_pkey']))
          expectBounded(BATCH)
        }
      }))

    it('due jobs are found through their index', () =>
      explained(client, mode, async () => {
        expect(await call('select * from longshore.promote_due($1)', [BATCH])).toMatchObject([
          { promoted: 50 },
        ])
        expect(readsOf('jobs').map(node => node['Index Name'])).toContain('jobs_scheduled')
        expectBounded(BATCH)
      }))

    it('[X12] what a worker holds is found by the worker, whatever else there is: its runs, its leave, its rescue', () =>
      explained(client, mode, async () => {
        await call(CLAIM, [workerId, BATCH])
        await call(CLAIM, [manyLanesWorkerId, BATCH])
        const isBounded = () => {
          expect(readsOf('jobs').map(node => node['Index Name'])).toContain('jobs_running')
          expectBounded(BATCH)
        }
        expect(await call('select longshore.count_running(array[$1::int])::int as n', [workerId])).toEqual([
          { n: BATCH },
        ])
        isBounded()
        expect(await call('select * from longshore.read_runs($1, false)', [workerId])).toHaveLength(BATCH)
        isBounded()
        expect(await call('select longshore.unregister_worker($1) as is_gone', [workerId])).toEqual([
          { is_gone: false },
        ])
        isBounded()
        await client.query(
          "update longshore.workers set expires_at = now() - interval '1 hour' where id = $1",
          [workerId],
        )
        expect(await call('select * from longshore.rescue(3600000, $1)', [BATCH])).toMatchObject([
          { worker_id: workerId, rescued: BATCH, is_gone: true },
        ])
        isBounded()
        expect(await call('select longshore.unregister_worker($1) as is_gone', [manyLanesWorkerId])).toEqual([
          { is_gone: false },
        ])
      }))

    it('[X12] what has expired is read and forgotten a page at a time', () =>
      explained(client, mode, async () => {
        await client.query(
          `insert into longshore.awaited (job_id, waiter, expires_at)
           select gen_random_uuid(), 'w', now() + (n % 2 - 0.5) * interval '1 hour' from generate_series(1, 20000) n`,
        )
        await client.query(
          `insert into longshore.past_runs (job_id, lease_token, worker_id, ended_at)
           select gen_random_uuid(), n, 1, now() - n % 2 * interval '2 days' from generate_series(1, 40000) n`,
        )
        await call('select 1', [])
        await call('select * from longshore.forget_expired()', [])
        await client.query('select 1') // the plan of a statement is told with the next one
        const reads = ['awaited', 'past_runs'].map(table =>
          Math.max(
            ...readsOf(table).map(node => node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)),
          ),
        )
        expect(reads).toEqual([5000, 5000])
      }))

    it('[X12] [L6] a first limit of a task reads what runs, and not what waits', () =>
      explained(client, mode, async () => {
        await call(CLAIM, [workerId, BATCH])
        await call('select longshore.register_tasks($1)', [
          JSON.stringify([
            {
              name: 'task-0',
              queue: 'default',
              tag: 'default',
              maxAttempts: 3,
              concurrency: 500,
              concurrencyPerKey: 5,
            },
          ]),
        ])
        expect(readsOf('jobs').map(node => node['Index Name'])).toContain('jobs_running')
        expectBounded(BATCH)
      }))
  },
)
