/**
 * Red tests: a function of the schema without one of its guards, built for the test alone. A race that a guard decides must
 * go wrong without it, or the test proves nothing.
 */
import { readFileSync } from 'node:fs'
import type { Queryable } from '../../src/job/queryable.ts'
import { inSchema } from '../../src/postgres/schema-name.ts'
import type { TestDatabase } from './database.ts'

/** What to take out of `migrations/functions/<name>.sql`, and what to put in its place. */
export interface Weakness {
  name: string
  remove: string
  replacement?: string
  /** Wherever it stands in the function, not only where it stands first. */
  isEverywhere?: boolean
}

const sqlOf = (name: string) =>
  readFileSync(new URL(`../../migrations/functions/${name}.sql`, import.meta.url), 'utf8')

/** Run `work` while the guard is gone. */
export async function weakened<T>(
  database: Pick<TestDatabase, 'rows'>,
  weaknesses: readonly Weakness[],
  work: () => Promise<T>,
): Promise<T> {
  // As a migration does: channels and locks are named after the schema.
  const create = (sql: string) =>
    database.rows(inSchema('longshore', sql.replace(/^create function/m, 'create or replace function')))
  const changed = new Map<string, string>()
  for (const { name, remove, replacement = '', isEverywhere = false } of weaknesses) {
    const sql = changed.get(name) ?? sqlOf(name)
    const weak = isEverywhere
      ? sql.replaceAll(remove, () => replacement)
      : sql.replace(remove, () => replacement)
    if (weak === sql) throw new Error(`${name}.sql does not hold: ${remove}`)
    changed.set(name, weak)
  }
  try {
    for (const sql of changed.values()) await create(sql)
    return await work()
  } finally {
    for (const name of changed.keys()) await create(sqlOf(name))
  }
}

/** Run `work` with a connection whose statements lack a guard: for SQL that stands in `src`. */
export async function withWeakQueries<T>(
  database: TestDatabase,
  { remove, replacement = '' }: Omit<Weakness, 'name'>,
  work: (db: Queryable) => Promise<T>,
): Promise<T> {
  const guarded = inSchema('longshore', remove)
  let isWeak = false
  const result = await work({
    query: async (text, values) => {
      const weak = text.replace(guarded, () => inSchema('longshore', replacement))
      isWeak ||= weak !== text
      return { rows: await database.rows(weak, values) }
    },
  })
  if (!isWeak) throw new Error(`no statement held: ${remove}`)
  return result
}

/** A pause for a barrier: the function waits there while somebody holds this advisory lock. */
export const pauseAt = (lock: number) => `perform pg_advisory_xact_lock_shared(${lock});`
