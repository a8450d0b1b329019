/** Owns what longshore itself can tell of both stores after a run, or in the middle of one. */
import { type DoctorReport, doctor } from '../../src/index.ts'
import { auditPostgres } from '../../src/postgres/audit.ts'
import type { Stage } from './stage.ts'
import type { Find } from './total-queue.ts'

/** At rest: every invariant, and the journal of every change of a job. */
export async function checkStores(stage: Stage, find: Find): Promise<DoctorReport> {
  const db = {
    query: async (text: string, values?: unknown[]) => ({
      rows: await stage.rows<Record<string, unknown>>(text, values),
    }),
  }
  for (const { invariant, problem, jobId } of [
    ...(await auditPostgres(db)),
    ...(await stage.journal.auditJournal()),
  ])
    find(`invariant ${invariant} does not hold`, jobId ?? '', problem)
  return askDoctor(stage, find)
}

/** Also while everything goes on. */
export async function askDoctor(stage: Stage, find: Find): Promise<DoctorReport> {
  const report = await doctor({ postgres: stage.postgres.url, redis: stage.redis.url })
  for (const { invariant, problem, jobId } of report.violations)
    find(`the doctor finds invariant ${invariant} violated`, jobId ?? '', problem)
  return report
}
