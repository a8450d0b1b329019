/** Every statement that a connection runs, nested ones too, with its plan and what it really read. */
import type { Pool } from '../../src/postgres/connect.ts'
import type { TestClient } from './database.ts'

export interface PlanNode {
  'Node Type': string
  'Relation Name'?: string
  'Index Name'?: string
  'Actual Rows': number
  'Actual Loops': number
  'Rows Removed by Filter'?: number
  'Rows Removed by Index Recheck'?: number
  'Rows Removed by Join Filter'?: number
  Plans?: PlanNode[]
}

export interface Plan {
  'Query Text': string
  Plan: PlanNode
}

export async function startExplaining(client: TestClient, onPlan: (plan: Plan) => void): Promise<void> {
  client.on('notice', notice => {
    const text = notice.message ?? ''
    const at = text.indexOf('{')
    if (text.includes('plan:') && at >= 0) onPlan(JSON.parse(text.slice(at)) as Plan)
  })
  await client.query("load 'auto_explain'")
  for (const setting of [
    'auto_explain.log_min_duration = 0',
    'auto_explain.log_nested_statements = on',
    'auto_explain.log_analyze = on',
    'auto_explain.log_timing = off',
    'auto_explain.log_format = json',
    'client_min_messages = log',
  ]) {
    await client.query(`set ${setting}`)
  }
}

/** As much of a pool as it takes to read, on the connection that explains. */
export const onClient = (client: TestClient) =>
  ({
    async transaction(work: (tx: TestClient) => Promise<unknown>) {
      await client.query('begin')
      try {
        return await work(client)
      } finally {
        await client.query('rollback')
      }
    },
  }) as unknown as Pool

/**
 * What statistics say of tables that were analysed when all their rows had gone, with pages left over: that there is one row, however
 * large they grow. Nothing makes the planner err further.
 */
export async function believeEmpty(client: TestClient, tables: readonly string[]): Promise<void> {
  await client.query(
    `with told as (
       select t.relid from unnest($1::regclass[]) g, pg_partition_tree(g) t
       union all
       select g from unnest($1::regclass[]) g
     )
     update pg_class set relpages = 1, reltuples = 0
     where oid in (select relid from told)
       or oid in (select i.indexrelid from pg_index i where i.indrelid in (select relid from told))`,
    [tables.map(table => `longshore.${table}`)],
  )
}

/** In a transaction that is rolled back, so that each mode sees the same rows and the same statistics. */
export async function explained(client: TestClient, mode: string, run: () => Promise<void>): Promise<void> {
  await client.query(`set plan_cache_mode = ${mode}`)
  await client.query('discard plans')
  await client.query('begin')
  try {
    await run()
  } finally {
    await client.query('rollback')
  }
}
