/**
 * The verb *audit*: asks Postgres whether what longshore promises holds right now, see `questions.ts`. Reads jobs and history
 * once for each question, so it is for tests and small systems; `doctor` asks the same of large ones, page by page.
 */
import type { JobId } from '../job/job-id.ts'
import type { Queryable } from '../job/queryable.ts'
import { explainDenied } from './denied.ts'
import { QUESTIONS, type Question, type QuestionOptions } from './questions.ts'
import { checkSchemaName, DEFAULT_SCHEMA, inSchema } from './schema-name.ts'

export interface Violation {
  /** The number of the invariant that does not hold. */
  invariant: number
  /** What is wrong, with the figures. */
  problem: string
  /** The job that shows it, where it is one job. */
  jobId?: JobId
}

/** An answer to a question. */
export interface Finding extends Violation {
  /** What its repair is about: the job, or the limit, lane, group, worker or workflow. */
  subject: string
}

/** A stretch of the ids of a table: behind `after`, up to `last`. */
export interface Page {
  after: string
  last: string
}

const MOST_VIOLATIONS = 100
const GRACE_MS = 10_000

/** What does not hold, at most 100 findings for each question; empty when everything is in order. */
export async function auditPostgres(
  db: Queryable,
  schema: string = DEFAULT_SCHEMA,
  options: Partial<QuestionOptions> = {},
): Promise<Violation[]> {
  checkSchemaName(schema)
  const asked = { graceMs: GRACE_MS, ...options }
  const found: Violation[] = []
  for (const question of QUESTIONS) {
    if (question.only === 'live') continue
    for (const { subject, ...violation } of await ask(db, schema, question, asked, MOST_VIOLATIONS))
      found.push(violation)
  }
  return found
}

/** Ask one question, about all of its table or a page of it. */
export async function ask(
  db: Queryable,
  schema: string,
  question: Question,
  options: QuestionOptions,
  most: number,
  page?: Page,
): Promise<Finding[]> {
  const values = question.values?.(options) ?? []
  const table = `longshore.${question.over}`
  let sql = question.sql.replaceAll('@page', table)
  if (page) {
    const [after, last] = [`$${values.length + 1}`, `$${values.length + 2}`]
    // Not a selection of all its columns: readers may not see what jobs carry.
    sql = question.sql.replaceAll(
      /@page (\w+)/g,
      (_, row) => `(${table} ${row} join (select) page on ${row}.id > ${after} and ${row}.id <= ${last})`,
    )
    values.push(page.after, page.last)
  }
  const limit = question.keep ? '' : ` limit ${most}`
  // Materialized: for the first few of many the planner would compare every job with every other.
  const text = inSchema(schema, `with found as materialized (${sql}) select * from found${limit}`)
  const { rows } = await db.query(text, values).catch(error => explainDenied(error, text))
  const kept = question.keep ? question.keep(rows).slice(0, most) : rows
  return kept.map(row => {
    const jobId = row['job_id'] as JobId | null
    const problem = String(row['problem'])
    return {
      invariant: question.invariant,
      problem,
      subject: String(row['subject'] ?? jobId ?? problem),
      ...(jobId === null ? {} : { jobId }),
    }
  })
}
