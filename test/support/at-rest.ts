/**
 * The full audit: waits until nothing is left to do, then asks both stores and the journal whether everything that is promised
 * holds. Every test of `test/crash` ends with it, while whoever keeps Redis in step still runs.
 */
import type { Violation } from '../../src/index.ts'
import { auditPostgres } from '../../src/postgres/audit.ts'
import { auditDispatch } from '../../src/relay/audit-dispatch.ts'
import type { TestDatabase } from './database.ts'
import type { Journal } from './journal.ts'
import { eventually } from './signals.ts'

export interface AtRestOptions {
  /** All jobs that were enqueued: then none may be missing, and none be there that is not named. */
  enqueued?: readonly { readonly id: string }[]
  /** How long to wait for the last job. Default 30 s. */
  withinMs?: number
}

type Rows = Pick<TestDatabase, 'rows'>

export const asQueryable = (database: Rows, options: { isPlanned?: boolean } = {}) => ({
  query: async (text: string, values?: unknown[]) => ({ rows: await database.rows(text, values, options) }),
})

const isEmpty = async (database: Rows, from: string) =>
  (await database.rows(`select from ${from} limit 1`)).length === 0

/** Every job has ended. */
export const drained = (database: Rows, withinMs = 30_000) =>
  eventually('nothing is unfinished', () => isEmpty(database, 'longshore.jobs'), withinMs)

/** `redis`: where jobs go through, if they do. */
export async function auditAtRest(
  database: Rows,
  journal: Journal,
  redis: string | undefined,
  { enqueued, withinMs }: AtRestOptions = {},
): Promise<void> {
  await drained(database, withinMs)
  const openGroups = 'longshore.groups where finished_at is null'
  await eventually('every group has ended', () => isEmpty(database, openGroups))
  await eventually('the outbox is empty', () => isEmpty(database, 'longshore.outbox'))
  const db = asQueryable(database)
  const ids = enqueued?.map(({ id }) => id)
  mustHold([
    ...(await auditPostgres(db, 'longshore', { isDrained: true, ...(ids ? { enqueued: ids } : {}) })),
    ...(await journal.auditJournal()),
    ...(redis ? await auditDispatch(db, { redis }) : []),
  ])
}

export function mustHold(violations: readonly Violation[]): void {
  if (violations.length === 0) return
  throw new Error(`the test left violated invariants behind:\n${violations.map(inWords).join('\n')}`)
}

export const inWords = ({ invariant, problem, jobId }: Violation) => `${invariant}: ${jobId ?? ''} ${problem}`
