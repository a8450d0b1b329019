/**
 * As plans.test.ts, for claims and settles under limits: on statistics of empty tables every statement must read no more
 * of any table than it needs, however many jobs, keys and closed lanes there are.
 */
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { claimedRows } from '../support/by-hand.ts'
import { type TestClient, useDatabase } from '../support/database.ts'
import { believeEmpty, explained, type Plan, type PlanNode, startExplaining } from '../support/explain.ts'

const database = useDatabase()
const ROWS = 100_000
const BATCH = 100
/** Keys with ready jobs, and keys that have been met before: each has a lane, a limit and a slot group. */
const KEYS = 200
const KNOWN_KEYS = 20_000
/** Lanes with keys that one turn of a claim looks at, and turns of a claim. */
const MOST_HEADS = 64
const MOST_TURNS = 8
const SLOT_GROUPS = 50
/** Limits, or lanes with keys, that the leader looks at in one call. */
const PAGE = 500

const TABLES = [
  'jobs',
  'lanes',
  'limits',
  'slot_groups',
  'lane_heads',
  'tasks',
  'workers',
  'finished_jobs',
  'awaited',
]

let client: TestClient
let plans: Plan[] = []
let oneLane: number
let fiveLanes: number
let keyed: number

const register = async (tasks: string[]) => {
  const { rows } = await client.query(
    `insert into longshore.workers (name, queues, tasks, tags, constraint_tags, listening)
     values ('w', '{default}', $1, '{default}', '{c:}', true) returning id`,
    [tasks],
  )
  return rows[0].id as number
}

beforeAll(async () => {
  client = await database.connect()
  for (const table of TABLES) {
    if (table !== 'finished_jobs')
      await client.query(`alter table longshore.${table} set (autovacuum_enabled = false)`)
  }
  // task-0 and task-1 have a limit, task-2 to task-4 have none, `keyed` has both kinds.
  const tasks = [
    { name: 'task-0', concurrency: 500 },
    { name: 'task-1', concurrency: 60 },
    { name: 'task-2' },
    { name: 'task-3' },
    { name: 'task-4' },
    { name: 'keyed', concurrency: 1000, concurrencyPerKey: 2 },
  ].map(task => ({ queue: 'default', tag: 'default', maxAttempts: 3, ...task }))
  await client.query('select longshore.register_tasks($1)', [JSON.stringify(tasks)])
  oneLane = await register(['task-0'])
  fiveLanes = await register(tasks.slice(0, 5).map(task => task.name))
  keyed = await register(['keyed'])
  await client.query(
    `insert into longshore.jobs (id, lane, score, state, max_attempts, payload)
     select longshore.new_id(), l.id, longshore.score(0, now()), 'ready', 3, '{}'
     from generate_series(1, $1) n join longshore.lanes l on l.task = 'task-' || n % 5 order by n`,
    [ROWS],
  )
  await client.query(
    `insert into longshore.lanes (queue, task, tag, constraint_tag, concurrency_key, parent)
     select l.queue, l.task, l.tag, l.constraint_tag, 'key ' || n, l.id
     from generate_series(1, $1) n, longshore.lanes l where l.task = 'keyed'`,
    [KNOWN_KEYS],
  )
  // The last ten have not been met yet, and get their limits from the claim.
  await client.query(
    `insert into longshore.limits (task, key, capacity)
     select l.task, l.concurrency_key, 2 from longshore.lanes l
     where l.concurrency_key <> '' and l.concurrency_key not in (select 'key ' || n from generate_series(1, 10) n)`,
  )
  await client.query(
    `insert into longshore.slot_groups (limit_id, number, capacity)
     select k.id, s.number, s.capacity from longshore.limits k, longshore.spread_slots(2) s where k.key <> ''`,
  )
  await client.query(
    `insert into longshore.jobs (id, lane, score, state, max_attempts, payload)
     select longshore.new_id(), l.id, longshore.score(0, now()) + n / $1::int, 'ready', 3, '{}'
     from generate_series(1, $2) n join longshore.lanes l on l.concurrency_key = 'key ' || 1 + n % $1::int`,
    [KEYS, ROWS],
  )
  await client.query(
    `insert into longshore.lane_heads (parent, lane, score, job_id)
     select l.parent, l.id, best.score, best.id
     from longshore.lanes l cross join lateral (
       select j.score, j.id from longshore.jobs j where j.lane = l.id order by j.score, j.id limit 1
     ) best
     where l.concurrency_key in (select 'key ' || n from generate_series(1, $1) n)`,
    [KEYS],
  )
  // The other keys wait for slots.
  await client.query(
    `insert into longshore.lane_heads (parent, lane, score, job_id, closed_by)
     select l.parent, l.id, longshore.score(2047, now()), longshore.new_id(), k.id
     from longshore.lanes l join longshore.limits k on k.task = l.task and k.key = l.concurrency_key
     where l.concurrency_key <> '' and l.id not in (select h.lane from longshore.lane_heads h)`,
  )
  await believeEmpty(client, ['jobs', 'finished_jobs', 'lane_heads', 'awaited'])
  await startExplaining(client, plan => plans.push(plan))
}, 120_000)

beforeEach(() => {
  plans = []
})

/** No statement reads more than `most` rows of any of the tables, nor passes over more than that. */
function expectBounded(most: number, among: readonly string[] = TABLES): void {
  const tooMuch: string[] = []
  const walk = (node: PlanNode, text: string) => {
    const relation = node['Relation Name'] ?? ''
    if (among.includes(relation) && node['Node Type'].endsWith('Scan')) {
      const read = (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops']
      if (read > most)
        tooMuch.push(`${node['Node Type']} ${node['Index Name'] ?? ''} of ${relation} reads ${read}: ${text}`)
    }
    for (const child of node.Plans ?? []) walk(child, text)
  }
  for (const plan of plans) walk(plan.Plan, plan['Query Text'].replace(/\s+/g, ' '))
  expect(tooMuch).toEqual([])
  expect(plans.length).toBeGreaterThan(0)
}

const claim = async (worker: number, limit = BATCH) => {
  plans = []
  const { rows } = await client.query(
    `select * from (${claimedRows('select * from longshore.claim($1, $2)')}) c order by id`,
    [worker, limit],
  )
  return rows as { id: string; lease_token: string }[]
}

const settle = async (worker: number, jobs: { id: string; lease_token: string }[], others: object[] = []) => {
  plans = []
  const { rows } = await client.query('select * from longshore.settle_and_claim($1, $2, $3, null, $4, 0)', [
    worker,
    jobs.map(job => job.id),
    jobs.map(job => job.lease_token),
    others.length > 0 ? JSON.stringify(others) : null,
  ])
  expect(rows[0]).toMatchObject({ busy: null, lost: null })
}

describe.each(['force_generic_plan', 'force_custom_plan'])(
  'analysed while empty, then 200,000 jobs and 20,000 keys, %s',
  mode => {
    it('a claim from one limited lane reads its head and its slot groups', () =>
      explained(client, mode, async () => {
        expect(await claim(oneLane)).toHaveLength(BATCH)
        expectBounded(BATCH)
      }))

    it('a claim from five lanes, of which two are limited, reads the head of each', () =>
      explained(client, mode, async () => {
        expect(await claim(fiveLanes)).toHaveLength(BATCH)
        expectBounded(BATCH * 5)
      }))

    it('[L7] a claim that finds its limit full closes it without reading the backlog', () =>
      explained(client, mode, async () => {
        for (let left = 500; left > 0; ) left -= (await claim(oneLane, 500)).length
        expect(await claim(oneLane)).toEqual([])
        expectBounded(BATCH)
      }))

    it('a claim from hundreds of keys reads a bounded choice of them', () =>
      explained(client, mode, async () => {
        expect((await claim(keyed)).length).toBeGreaterThanOrEqual(BATCH / 2)
        // For each lane the rows that its limit has room for; its limit's two slot groups. A second turn looks at twice as many.
        expectBounded(MOST_HEADS * 2 * 4)
        expect(plans.length).toBeLessThan(MOST_TURNS * MOST_HEADS * 10)
      }))

    it('[L7] a claim from keys whose limits are all full closes them', () =>
      explained(client, mode, async () => {
        for (let call = 0; call < 8; call++) await claim(keyed, 500)
        await claim(keyed)
        expectBounded(500)
      }))

    it('a claim of jobs that Redis named passes slots on to those of the same keys, and takes others by their keys', () =>
      explained(client, mode, async () => {
        // Two of each of a hundred keys, then half of these keys and as many new ones.
        const named = async (from: number, to: number) => {
          const { rows } = await client.query(
            `select j.id, j.lane from longshore.lanes l cross join lateral (
               select j.id, j.lane from longshore.jobs j where j.lane = l.id and j.state = 'ready' order by j.score, j.id limit 2
             ) j
             where l.concurrency_key in (select 'key ' || n from generate_series($1::int, $2::int) n)`,
            [from, to],
          )
          await client.query('select 1') // the plan of a statement is told with the next one
          return rows as { id: string; lane: number }[]
        }
        const exchange = async (
          jobs: { id: string; lane: number }[],
          ended: { ids: string[]; token: string } = { ids: [], token: '' },
        ) => {
          plans = []
          const ids = [...ended.ids].sort()
          const { rows } = await client.query(
            "select ids, split_part(lease_tokens, '*', 1) as lease_token, busy, lost, refused from longshore.settle_and_claim($1, $2, $3, null, null, $4, $5, $6)",
            [
              keyed,
              ids,
              ids.map(() => ended.token),
              jobs.length,
              jobs.map(job => job.id),
              [...new Set(jobs.map(job => job.lane))],
            ],
          )
          expect(rows[0]).toMatchObject({ busy: null, lost: null, refused: null })
          return { ids: rows[0].ids.split(',') as string[], token: rows[0].lease_token as string }
        }
        await client.query("update longshore.limits set capacity = null where task = 'keyed' and key = ''")
        const running = await exchange(await named(51, 150))
        expectBounded(2 * BATCH, ['slot_groups', 'limits', 'lanes', 'jobs'])
        expect((await exchange(await named(101, 200), running)).ids).toHaveLength(2 * BATCH)
        expectBounded(2 * BATCH, ['slot_groups', 'limits', 'lanes', 'jobs'])
      }))

    it('settles free slots by their keys, and open what waited for them', () =>
      explained(client, mode, async () => {
        for (const worker of [oneLane, keyed]) {
          const jobs = await claim(worker)
          // As if others had found the limits full meanwhile.
          await client.query(
            `update longshore.limits k set is_full = true
             where k.id in (select g.limit_id from longshore.slot_groups g where g.used > 0)`,
          )
          const some = Math.floor(jobs.length / 2)
          const others = jobs.slice(some).map((job, n) => ({
            id: job.id,
            token: job.lease_token,
            outcome: ['failed', 'retry', 'released'][n % 3],
            delayMs: 1000,
          }))
          await settle(worker, jobs.slice(0, some), others)
          expectBounded(Math.max(BATCH * 3, SLOT_GROUPS))
        }
      }))

    it('the leader renews limits by their keys', () =>
      explained(client, mode, async () => {
        await client.query(
          `insert into longshore.limit_uses (limits)
           select array_agg(k.id) from (select k.id from longshore.limits k where k.key <> '' order by k.id limit $1) k`,
          [BATCH],
        )
        await client.query('select 1') // the plan of a statement is told with the next one
        plans = []
        const { rows } = await client.query('select renewed, waiting from longshore.renew_limits(-1000)')
        expect(rows).toEqual([{ renewed: BATCH, waiting: [] }])
        // Two slot groups each.
        expectBounded(2 * BATCH)
      }))

    it('[X12] the leader looks at a page of limits and of lanes with keys, and forgets limits by their keys', () =>
      explained(client, mode, async () => {
        // Of 300 keys no job is ready.
        await client.query(
          `delete from longshore.lane_heads h using longshore.lanes l where l.id = h.lane
             and l.concurrency_key in (select 'key ' || n from generate_series(301, 600) n)`,
        )
        await client.query(
          'update longshore.limit_looks set done_to = 0, idle_since = pg_snapshot_xmax(pg_current_snapshot())',
        )
        await client.query('select 1') // the plan of a statement is told with the next one
        plans = []
        const { rows } = await client.query('select * from longshore.forget_limits(0)')
        expect(rows).toEqual([{ forgotten: expect.any(Number), is_done: false }])
        expect(rows[0].forgotten).toBeGreaterThan(200)
        await client.query('select longshore.forget_heads(0)')
        await client.query('select 1')
        // Two slot groups each, asked for their era and for themselves.
        expectBounded(4 * PAGE)
      }))

    it('[X12] the relay finds lanes with ready jobs without reading the keys that have none', () =>
      explained(client, mode, async () => {
        const { rows } = await client.query("select * from longshore.lanes_with_jobs('default', 0, 1000)")
        // Six tasks, of which five have jobs.
        expect(rows).toHaveLength(6 + KEYS)
        await client.query('select 1')
        expectBounded(2 * (6 + KEYS))
        const { rows: some } = await client.query("select * from longshore.lanes_with_jobs('default', 0, 20)")
        expect(some.map(row => row.lane)).toEqual(rows.slice(0, 20).map(row => row.lane))
        const after = some.at(-1).lane as number
        const { rows: next } = await client.query(
          "select * from longshore.lanes_with_jobs('default', $1, 1000)",
          [after],
        )
        expect(next).toEqual(rows.slice(20))
      }))
  },
)
