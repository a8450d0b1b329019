/**
 * Asks every question of the audit of a live system, at little cost: tables that grow are read page by page along their
 * keys, each statement has a time limit, and there is a pause between pages. A finding is checked again before it is
 * reported: a change may have been under way.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { Queryable } from '../job/queryable.ts'
import { ask, type Finding, type Page } from './audit.ts'
import type { Pool } from './connect.ts'
import { explainDenied } from './denied.ts'
import { type PagedTable, QUESTIONS, type Question, type QuestionOptions } from './questions.ts'
import { inSchema } from './schema-name.ts'

export interface ExamineOptions extends Pick<QuestionOptions, 'graceMs'> {
  pageSize: number
  pauseMs: number
  /** How often something must be seen before it is told. */
  looks: number
  onPage: (table: PagedTable | 'limits and workers', rows: number) => void
  onFinding: (finding: Finding, question: Question) => Promise<void>
  /** A question that took too long. */
  onUnanswered: (question: Question, why: string) => void
}

/** Below the pool's own limit, so that Postgres ends the statement, and not only we the wait for it. */
const STATEMENT_MS = 25_000
const BETWEEN_LOOKS_MS = 250
/** Of a question that is not asked by page. */
const MOST_FINDINGS = 10_000

const FIRST: Readonly<Record<PagedTable, string>> = {
  jobs: '00000000-0000-0000-0000-000000000000',
  finished_jobs: '00000000-0000-0000-0000-000000000000',
  groups: '00000000-0000-0000-0000-000000000000',
  workflows: '0',
  lanes: '0',
}
const LAST: Readonly<Record<PagedTable, string>> = {
  jobs: 'ffffffff-ffff-ffff-ffff-ffffffffffff',
  finished_jobs: 'ffffffff-ffff-ffff-ffff-ffffffffffff',
  groups: 'ffffffff-ffff-ffff-ffff-ffffffffffff',
  workflows: '9223372036854775807',
  lanes: '2147483647',
}

export async function examine(pool: Pool, schema: string, options: ExamineOptions): Promise<void> {
  const questions = QUESTIONS.filter(({ only }) => only !== 'audit')
  for (const table of Object.keys(FIRST) as PagedTable[]) {
    const about = questions.filter(({ over }) => over === table)
    let after = FIRST[table]
    for (let isLast = false; !isLast; ) {
      const { last, rows } = await gently(pool, true, tx =>
        readPage(tx, schema, table, after, options.pageSize),
      )
      isLast = rows < options.pageSize
      const page = { after, last: isLast ? LAST[table] : last }
      if (rows > 0) await askAll(pool, schema, about, options, page)
      options.onPage(table, rows)
      after = last
      if (!isLast) await pause(options.pauseMs)
    }
  }
  const whole = questions.filter(({ over }) => over === undefined)
  await askAll(pool, schema, whole, options)
  options.onPage('limits and workers', 0)
}

async function readPage(db: Queryable, schema: string, table: PagedTable, after: string, size: number) {
  const text = inSchema(
    schema,
    `select p.id::text as last, count(*) over ()::int as rows
     from (select id from longshore.${table} where id > $1 order by id limit $2) p order by p.id desc limit 1`,
  )
  const { rows } = await db.query(text, [after, size]).catch(error => explainDenied(error, text))
  return { last: String(rows[0]?.['last'] ?? after), rows: Number(rows[0]?.['rows'] ?? 0) }
}

async function askAll(
  pool: Pool,
  schema: string,
  questions: readonly Question[],
  options: ExamineOptions,
  page?: Page,
) {
  for (const question of questions) {
    const look = () =>
      gently(pool, page !== undefined, tx => ask(tx, schema, question, options, MOST_FINDINGS, page))
    try {
      let found = await look()
      for (let looks = 1; found.length > 0 && looks < options.looks; looks++) {
        await pause(BETWEEN_LOOKS_MS)
        const again = new Set((await look()).map(keyOf))
        found = found.filter(finding => again.has(keyOf(finding)))
      }
      for (const finding of found) await options.onFinding(finding, question)
    } catch (error) {
      if ((error as { code?: unknown }).code !== '57014') throw error
      options.onUnanswered(question, `it took longer than ${STATEMENT_MS / 1000} s`)
    }
  }
}

/** Figures may move between two looks; what it is about does not. */
const keyOf = ({ subject, jobId }: Finding) => `${subject} ${jobId ?? ''}`

/**
 * In a transaction that can change nothing and ends by itself. A page is read along the keys, whatever statistics say: 80,000 rows
 * took 3.5 s that way, and 23 s where Postgres was free to read whole tables for a page (one run, busy machine).
 */
function gently<T>(pool: Pool, isPage: boolean, work: (tx: Queryable) => Promise<T>): Promise<T> {
  return pool.transaction(async tx => {
    await tx.query(
      `set transaction read only; set local statement_timeout = ${STATEMENT_MS}; set local lock_timeout = 5000;
       set local jit = off`,
    )
    if (isPage)
      await tx.query(
        'set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off',
      )
    return work(tx)
  })
}
