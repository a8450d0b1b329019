/**
 * Owns which settings of a Postgres session longshore depends on. It sets them on connections of its own, and refuses a server by the name
 * of the setting where it cannot: behind a pooler a session is shared with others. Everything else may be set as one likes: no
 * statement depends on DateStyle, TimeZone, string syntax or locale.
 */
import type pg from 'pg'
import { LongshoreError } from '../job/errors.ts'
import type { Queryable } from '../job/queryable.ts'

interface Setting {
  name: string
  /** What it is set to; for a time limit, the milliseconds that it must at least be, where there is one at all. */
  value: string | number
  /** Where it cannot be set: nothing starts. Default true. */
  isRefused?: boolean
}

const SETTINGS: readonly Setting[] = [
  // A statement that has waited for a lock must read the newest rows, or jobs that wait for others are missed.
  { name: 'default_transaction_isolation', value: 'read committed' },
  // Calls take milliseconds, and up to ten seconds where they wait for a lock.
  { name: 'statement_timeout', value: 10_000 },
  { name: 'transaction_timeout', value: 10_000 },
  { name: 'lock_timeout', value: 1000 },
  { name: 'idle_in_transaction_session_timeout', value: 1000 },
  // Those that listen are idle for hours. A pooler's connections are its own.
  { name: 'idle_session_timeout', value: 86_400_000, isRefused: false },
  // Figures are told to the last digit; rounded, they are still of use.
  { name: 'extra_float_digits', value: '1', isRefused: false },
]

/** Nothing of a user's own schemas may stand for what Postgres has. Not where users run statements of their own. */
const SEARCH_PATH: Setting = { name: 'search_path', value: 'pg_catalog' }

/**
 * One statement, with the process that the server introduced itself as: behind a pooler that is another one, and nothing is
 * set, since another client may be the next to use that session.
 */
const pinning = (settings: readonly Setting[]) => `
  select pg_catalog.set_config(p.name, p.value, false)
  from (values ${settings.map(({ name, value }) => `('${name}', '${value}', ${typeof value === 'number'})`).join(', ')}
  ) as p(name, value, is_least)
  where pg_catalog.pg_backend_pid() = $1::int and case when p.is_least
    -- Null: this version of Postgres has no such limit.
    then pg_catalog.current_setting(p.name, true)::interval > interval '0'
      and pg_catalog.current_setting(p.name, true)::interval < p.value::int * interval '1 millisecond'
    else true end`

/** For the heartbeat too, which has nothing but texts. */
export const PIN = pinning([...SETTINGS, SEARCH_PATH])
const PIN_FOR_USERS = pinning(SETTINGS)

/** Once for each new connection. `isLent`: users run statements of their own on it, in their own search_path. */
export async function pinSession(client: pg.ClientBase, isLent = false): Promise<void> {
  await client.query(isLent ? PIN_FOR_USERS : PIN, [(client as { processID?: unknown }).processID])
}

/** Refuses settings that longshore cannot work with. `writes`: also a session that may not write. */
export async function checkSession(client: Queryable, { writes }: { writes: boolean }): Promise<void> {
  const { rows } = await client.query(
    `select s.name, s.setting, pg_catalog.quote_ident(current_user) as "user",
       (pg_catalog.current_schemas(true)::text[])[1] ~ '^pg_(catalog|temp_[0-9]+)$' as "hasPath"
     from pg_catalog.pg_settings s
     where s.name = any ($1)
       and not (s.name = 'default_transaction_read_only' and (not $2::boolean or pg_catalog.pg_is_in_recovery()))`,
    [
      [
        'server_encoding',
        'session_replication_role',
        'default_transaction_read_only',
        'search_path',
        ...SETTINGS.map(({ name }) => name),
      ],
      writes,
    ],
  )
  for (const row of rows) {
    const [name, value, user] = [String(row['name']), String(row['setting']), String(row['user'])]
    if (name === 'search_path' && row['hasPath'] === true) continue
    const why = whyRefused(name, value, user)
    if (why !== undefined) throw new LongshoreError('CONFIG_INVALID', why)
  }
}

function whyRefused(name: string, value: string, user: string): string | undefined {
  const setFor = (wanted: string) =>
    `run \`alter role ${user} set ${name} = ${wanted}\`, or give longshore a user of its own`
  switch (name) {
    case 'server_encoding':
      return value === 'UTF8'
        ? undefined
        : `server_encoding of this database is ${value}, and longshore needs UTF8: make a database with \`create database … encoding 'UTF8' template template0\``
    case 'session_replication_role':
      return value === 'replica'
        ? `session_replication_role is replica, so that no trigger fires and the relay is not told of jobs: ${setFor('origin')}`
        : undefined
    case 'default_transaction_read_only':
      return value === 'on'
        ? `default_transaction_read_only is on, and longshore writes: ${setFor('off')}`
        : undefined
    case 'search_path':
      return (
        `search_path is ${value}, with a schema before pg_catalog whose functions would stand for those of Postgres; behind a pooler longshore ` +
        `cannot set that itself: leave pg_catalog out of it, ${setFor('public')}`
      )
  }
  const needed = SETTINGS.find(setting => setting.name === name)
  if (!needed || needed.isRefused === false || fits(needed, value)) return undefined
  const isLeast = typeof needed.value === 'number'
  return (
    `${name} is ${value}${isLeast ? ' ms' : ''}, and longshore needs ${isLeast ? `0 (none) or ${needed.value} ms at least` : needed.value}; ` +
    `behind a pooler it cannot set that itself: ${setFor(isLeast ? '0' : `'${needed.value}'`)}`
  )
}

const fits = ({ value: needed }: Setting, value: string) =>
  typeof needed === 'number' ? Number(value) === 0 || Number(value) >= needed : value === needed
