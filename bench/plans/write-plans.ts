/**
 * Owns `npm run bench -- --plans`: what the hot functions do at 1,000,000 pending jobs, statement by statement, as
 * auto_explain tells. One file for each case, in this folder; costs and estimates, which say nothing to a reader, are
 * left out.
 */
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import type { Sizes } from '../measure/sizes.ts'
import type { Database } from '../stores/database.ts'
import { type PlanCase, planCases } from './cases.ts'

const folder = fileURLToPath(new URL('.', import.meta.url))
/** Planned anew a few times, then kept: the call that is shown is one of a session that is warm. */
const WARM_CALLS = 8
const LONGEST_QUERY = 200
const LONGEST_LINE = 160
const UNINTERESTING =
  /^\s*(Query Parameters|JIT|Settings|Storage|Buckets|Batches|Sort Method|Heap Fetches|Index Searches):/

const SETTINGS = [
  'auto_explain.log_min_duration = 0',
  'auto_explain.log_nested_statements = on',
  'auto_explain.log_analyze = on',
  'auto_explain.log_format = text',
  'client_min_messages = log',
]

export async function writePlans(options: {
  database: Database
  sizes: Sizes
  install: () => Promise<void>
  say: (line: string) => void
}): Promise<void> {
  for (const plan of planCases) {
    await options.database.reset()
    await options.install()
    const text = await explain(options.database, plan, options.sizes)
    const file = `${folder}${plan.id}.txt`
    writeFileSync(file, text)
    options.say(`wrote ${file}`)
  }
}

async function explain(database: Database, plan: PlanCase, sizes: Sizes): Promise<string> {
  await database.query('alter table longshore.jobs set (autovacuum_enabled = false)')
  const { about, prepare, call } = await plan.fill(database, sizes)
  await database.settle()
  const client = new pg.Client(database.url)
  await client.connect()
  try {
    const notices: string[] = []
    client.on('notice', notice => notices.push(notice.message ?? ''))
    const run = async () => {
      await client.query('begin')
      if (prepare !== undefined) await client.query(prepare)
      notices.length = 0
      const startedAt = performance.now()
      await client.query(call)
      const ms = performance.now() - startedAt
      await client.query('rollback')
      return ms
    }
    let ms = 0
    for (let i = 0; i < WARM_CALLS; i++) ms = await run()
    await client.query("load 'auto_explain'")
    for (const setting of SETTINGS) await client.query(`set ${setting}`)
    await run()
    const statements = formatStatements(notices.flatMap(readStatement))
    return `${[about, `${call.trim()}: ${ms.toFixed(2)} ms as the caller sees it, unexplained`, ...statements].join('\n\n')}\n`
  } finally {
    await client.end()
  }
}

interface Statement {
  ms: number
  query: string
  plan: string
}

/** `duration: 0.1 ms  plan:\nQuery Text: …\nPlan …` */
function readStatement(notice: string): Statement[] {
  const found = /^duration: ([\d.]+) ms\s+plan:\nQuery Text: ([\s\S]*?)\n((?:\w[^\n]*\(cost=)[\s\S]*)$/.exec(
    notice,
  )
  if (!found) return []
  const [, ms, query = '', plan = ''] = found
  const text = query
    .replace(/\nQuery Parameters: [\s\S]*$/, '')
    .replace(/\s*--[^\n]*/g, '')
    .replace(/\s+/g, ' ')
  const lines = plan
    .split('\n')
    .map(line => line.replace(/\s*\(cost=[^)]*\)/, '').trimEnd())
    .filter(line => line !== '' && !UNINTERESTING.test(line))
    .map(line => `  ${shorten(line, LONGEST_LINE)}`)
  return [{ ms: Number(ms), query: shorten(text, LONGEST_QUERY), plan: lines.join('\n') }]
}

/** In the order they ended, inner ones first; what ran several times stands where it ran first, with that plan. */
function formatStatements(statements: readonly Statement[]): string[] {
  const byQuery = new Map<string, { first: Statement; times: number; ms: number }>()
  for (const statement of statements) {
    const known = byQuery.get(statement.query) ?? { first: statement, times: 0, ms: 0 }
    known.times++
    known.ms += statement.ms
    byQuery.set(statement.query, known)
  }
  return [...byQuery.values()].map(
    ({ first, times, ms }) =>
      `${ms.toFixed(2)} ms${times > 1 ? ` in ${times} times` : ''}  ${first.query}\n${first.plan}`,
  )
}

const shorten = (text: string, longest: number) =>
  text.length > longest ? `${text.slice(0, longest)} …` : text
