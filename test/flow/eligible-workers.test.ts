/** Many workers, each with its own tags and properties: who may run the jobs of a lane is found through an index. */
import { beforeAll, describe, expect, it } from 'vitest'
import { type TestClient, useDatabase } from '../support/database.ts'

const database = useDatabase()
const WORKERS = 50_000

let client: TestClient
let plans: string[] = []

beforeAll(async () => {
  client = await database.connect()
  await client.query(
    `insert into longshore.workers (name, queues, tasks, tags, properties, constraint_tags, expires_at, dead_at)
     select 'w', '{default}', case when n % 5 = 0 then '{other}' else '{train,other}' end::text[],
       array['default', 'site-' || n % 500],
       jsonb_build_object('gpu', 'g' || n % 100), array['c:', 'c:gpu=g' || n % 100],
       now() + case when n % 7 = 0 then interval '-1 second' else interval '1 hour' end,
       case when n % 11 = 0 then now() end
     from generate_series(1, $1::int) n`,
    [WORKERS],
  )
  await client.query('vacuum analyze longshore.workers')
  client.on('notice', notice => {
    if (notice.message?.includes('plan:')) plans.push(notice.message)
  })
  await client.query("load 'auto_explain'")
  for (const setting of [
    'auto_explain.log_min_duration = 0',
    'auto_explain.log_nested_statements = on',
    'client_min_messages = log',
  ]) {
    await client.query(`set ${setting}`)
  }
}, 120_000)

describe('eligible_workers', () => {
  it.each([
    ['site-42', 'c:', 'force_custom_plan', /Bitmap Index Scan on workers_by_tag\b/],
    ['default', 'c:gpu=g42', 'force_custom_plan', /Bitmap Index Scan on workers_by_constraint_tag\b/],
    ['site-42', 'c:gpu=g42', 'force_custom_plan', /Bitmap Index Scan on workers_by_tag\b/],
    ['site-42', 'c:gpu=g42', 'force_generic_plan', /Bitmap Index Scan on workers_by_(constraint_)?tag\b/],
  ])(
    '[D12] finds the live workers for %s and %s among 50,000 through a GIN index (%s)',
    async (tag, constraintTag, mode, index) => {
      const made = await client.query('select longshore.make_lane($1, $2, $3, $4) as id', [
        'default',
        'train',
        tag,
        constraintTag,
      ])
      await client.query(`set plan_cache_mode = ${mode}`)
      await client.query('discard plans')
      plans = []
      const { rows } = await client.query('select longshore.eligible_workers($1) as id', [made.rows[0].id])
      const plan = plans.find(text => text.includes('constraint_tags @>')) ?? ''
      expect(plan).toMatch(index)
      expect(plan).not.toContain('Seq Scan on workers')

      const expected = await database.rows<{ id: number }>(
        `select id from longshore.workers
         where $1 = any (tags) and $2 = any (constraint_tags) and 'train' = any (tasks)
           and expires_at > now() and dead_at is null`,
        [tag, constraintTag],
      )
      const ids = (found: { id: number }[]) => found.map(row => row.id).sort((a, b) => a - b)
      expect(ids(rows)).toEqual(ids(expected))
      expect(rows.length).toBeGreaterThan(10)
    },
  )

  it('[D12] has nobody for a lane that does not exist', async () => {
    expect((await client.query('select longshore.eligible_workers(0)')).rows).toEqual([])
  })
})
