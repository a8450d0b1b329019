/** A connection keeps its plans. Those made while the tables had a page must not read them whole once they have grown. */
import { expect, it } from 'vitest'
import { newJobId } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { believeEmpty, type PlanNode, startExplaining } from '../support/explain.ts'

const database = useDatabase()
const ROWS = 50_000
const BATCH = 100

it('what a connection planned while the queue was nearly empty still goes by keys when it has grown', async () => {
  const client = await database.connect()
  await client.query('alter table longshore.jobs set (autovacuum_enabled = false)')
  await believeEmpty(client, ['jobs', 'lanes', 'workers', 'finished_jobs'])
  const { rows } = await client.query(
    "select longshore.register_worker('w', '{default}', '{t}', '{default}', '{}', '{c:}', 3600000) as id",
  )
  const worker = rows[0].id as number
  const exchange = async (
    ids: string[],
    token: string | null,
    limit: number,
    these: string[] | null = null,
  ) => {
    const tokens = ids.map(() => token)
    const lanes =
      these && (await client.query('select array_agg(id) as ids from longshore.lanes')).rows[0].ids
    const answer = await client.query(
      'select * from longshore.settle_and_claim($1, $2, $3, null, null, $4, $5, $6)',
      [worker, ids, tokens, limit, these, lanes],
    )
    const { busy, lost, ids: claimed, lease_tokens: runs } = answer.rows[0]
    expect([busy, lost]).toEqual([null, null])
    return {
      ids: claimed === null ? [] : (claimed as string).split(',').sort(),
      token: String(runs).split('*')[0] as string,
    }
  }
  const enqueue = (ids: string[]) =>
    client.query("select longshore.enqueue_plain('default', 't', 'default', 0, 3, $1, $2, false)", [
      ids,
      ids.map(() => '{}').join('\n'),
    ])
  for (let n = 0; n < 3; n++) {
    const id = newJobId()
    await enqueue([id])
    const claim = await exchange([], null, 1, n === 0 ? [id] : null)
    await exchange(claim.ids, claim.token, 0)
  }
  const ids = Array.from({ length: ROWS }, () => newJobId())
  await enqueue(ids)

  const seen: { query: string; node: PlanNode }[] = []
  await startExplaining(client, plan => {
    const walk = (node: PlanNode) => {
      if (node['Relation Name']?.match(/^(jobs|finished_jobs)/))
        seen.push({ query: plan['Query Text'], node })
      for (const child of node.Plans ?? []) walk(child)
    }
    walk(plan.Plan)
  })
  const first = await exchange([], null, BATCH)
  const second = await exchange(first.ids, first.token, BATCH, ids.slice(BATCH, 2 * BATCH))
  await exchange(second.ids, second.token, 0)
  expect(second.ids).toHaveLength(BATCH)
  expect(seen.length).toBeGreaterThan(4)
  expect(seen.filter(({ node }) => node['Node Type'] === 'Seq Scan')).toEqual([])
})
