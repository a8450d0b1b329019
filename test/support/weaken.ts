/**
 * Red tests: a function or view of the schema without one of its guards, built for the test alone. A race that a guard decides must
 * go wrong without it, or the test proves nothing.
 */
import { readdirSync, readFileSync } from 'node:fs'
import type { Queryable } from '../../src/job/queryable.ts'
import { inSchema } from '../../src/postgres/schema-name.ts'
import type { TestDatabase } from './database.ts'

/** A function or view of the schema, by its name, with one change. */
export type Weakness = WithoutGuard | WithInsertion | WithSetting | WithOtherCall

/** Without what stands between `/* guard: x *\/` and `/* end x *\/`, wherever that is in the function. */
export interface WithoutGuard {
  name: string
  guard: string
  /** What stands there instead. */
  replacement?: string
}

/** With more at `/* point: x *\/`, mostly a pause for a barrier. The point `start` is the first line of every function. */
export interface WithInsertion {
  name: string
  point: string
  insertion: string
}

/** With another value of a setting that its header sets: mostly a longer wait for locks. */
export interface WithSetting {
  name: string
  setting: string
  value: string
}

/** With a call of another function of the schema, wherever it calls this one. */
export interface WithOtherCall {
  name: string
  call: string
  other: string
}

const FUNCTIONS = new URL('../../migrations/functions/', import.meta.url)
const files = new Map(
  readdirSync(FUNCTIONS, { recursive: true, encoding: 'utf8' })
    .filter(path => path.endsWith('.sql'))
    .map(path => [path.slice(path.lastIndexOf('/') + 1, -'.sql'.length), new URL(path, FUNCTIONS)]),
)

const MIGRATIONS = new URL('../../migrations/', import.meta.url)
/** Views stand in migrations: what holds is the last that makes it. */
const viewOf = (name: string) =>
  readdirSync(MIGRATIONS)
    .filter(file => file.endsWith('.sql'))
    .sort()
    .map(file => readFileSync(new URL(file, MIGRATIONS), 'utf8'))
    .findLast(text => text.includes(`view longshore.${name} as`))
    ?.match(new RegExp(`^create (?:or replace )?view longshore\\.${name} as[^;]*;`, 'm'))?.[0]

function sqlOf(name: string): string {
  const file = files.get(name)
  const sql = file ? readFileSync(file, 'utf8') : viewOf(name)
  if (sql === undefined) throw new Error(`there is no function or view ${name}`)
  return sql
}

type Change = Weakness | Omit<WithoutGuard, 'name'> | Omit<WithInsertion, 'name'>

function weaken(sql: string, weakness: Change): string {
  if ('guard' in weakness) {
    const { guard, replacement = '' } = weakness
    return sql.replaceAll(
      new RegExp(`/\\* guard: ${guard} \\*/[^]*?/\\* end ${guard} \\*/`, 'g'),
      () => replacement,
    )
  }
  if ('point' in weakness) {
    const { point, insertion } = weakness
    if (point === 'start') return sql.replace('\nbegin\n', begin => `${begin}  ${insertion}\n`)
    return sql.replaceAll(`/* point: ${point} */`, () => insertion)
  }
  if ('call' in weakness) return sql.replaceAll(`longshore.${weakness.call}(`, `longshore.${weakness.other}(`)
  const { setting, value } = weakness
  return sql.replace(new RegExp(`^set ${setting} = .*$`, 'm'), () => `set ${setting} = '${value}'`)
}

/** Run `work` while the guard is gone. */
export async function weakened<T>(
  database: Pick<TestDatabase, 'rows'>,
  weaknesses: readonly Weakness[],
  work: () => Promise<T>,
): Promise<T> {
  // As a migration does: channels and locks are named after the schema.
  const create = (sql: string) =>
    database.rows(inSchema('longshore', sql.replace(/^create (function|view)/m, 'create or replace $1')))
  const changed = new Map<string, string>()
  for (const weakness of weaknesses) {
    const sql = changed.get(weakness.name) ?? sqlOf(weakness.name)
    const weak = weaken(sql, weakness)
    if (weak === sql) throw new Error(`${weakness.name}.sql does not hold: ${JSON.stringify(weakness)}`)
    changed.set(weakness.name, weak)
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
  weakness: Omit<WithoutGuard, 'name'> | Omit<WithInsertion, 'name'>,
  work: (db: Queryable) => Promise<T>,
): Promise<T> {
  let isWeak = false
  const result = await work({
    query: async (text, values) => {
      const weak = weaken(text, weakness)
      isWeak ||= weak !== text
      return { rows: await database.rows(weak, values) }
    },
  })
  if (!isWeak) throw new Error(`no statement holds: ${JSON.stringify(weakness)}`)
  return result
}

/** A pause for a barrier: the function waits there while somebody holds this advisory lock, however long it waits for other locks. */
export const pauseAt = (lock: number) => `
  declare
    v_lock_timeout text := current_setting('lock_timeout');
  begin
    perform set_config('lock_timeout', '0', true);
    perform pg_advisory_xact_lock_shared(${lock});
    perform set_config('lock_timeout', v_lock_timeout, true);
  end;`
