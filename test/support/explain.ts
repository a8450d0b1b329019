/** Every statement that a connection runs, nested ones too, with its plan and what it really read. */
import type { TestClient } from './database.ts'

export interface PlanNode {
  'Node Type': string
  'Relation Name'?: string
  'Index Name'?: string
  'Actual Rows': number
  'Actual Loops': number
  'Rows Removed by Filter'?: number
  'Rows Removed by Index Recheck'?: number
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
