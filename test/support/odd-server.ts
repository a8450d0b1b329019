/**
 * A database on which everything is set as hardly anybody does, for the runs that show that longshore does not care: `odd server` in
 * vitest.config.ts, and any other with LONGSHORE_ODD=1.
 */
import type pg from 'pg'

/** What longshore sets on its own connections, or refuses behind a pooler. */
const NEEDED: Readonly<Record<string, string>> = {
  default_transaction_isolation: 'serializable',
  extra_float_digits: '-15',
  idle_in_transaction_session_timeout: '50ms',
  idle_session_timeout: '500ms',
  lock_timeout: '5ms',
  // A schema that stands before Postgres' own, see `SHADOWS`.
  search_path: 'public, odd, pg_catalog',
  statement_timeout: '50ms',
  transaction_timeout: '500ms',
}

/** What it does not depend on. */
const SETTINGS: Readonly<Record<string, string>> = {
  array_nulls: 'off',
  backslash_quote: 'off',
  bytea_output: 'escape',
  client_encoding: 'LATIN1',
  client_min_messages: 'log',
  datestyle: 'German, DMY',
  default_transaction_deferrable: 'on',
  escape_string_warning: 'on',
  intervalstyle: 'sql_standard',
  lc_messages: 'POSIX',
  lc_monetary: 'POSIX',
  lc_numeric: 'POSIX',
  lc_time: 'POSIX',
  'plpgsql.extra_errors': 'too_many_rows, strict_multi_assignment',
  'plpgsql.variable_conflict': 'use_variable',
  quote_all_identifiers: 'on',
  row_security: 'off',
  standard_conforming_strings: 'off',
  // Without a name that anything knows, and no whole hours.
  timezone: '<odd>-05:45',
  transform_null_equals: 'on',
}

/** What would be meant by a name that is not qualified. */
const SHADOWS = `
  create schema odd;
  grant usage on schema odd to public;
  create table odd.jobs (nothing int);
  create table odd.settings (nothing int);
  create table odd.workers (nothing int);
  create function odd.now() returns timestamptz language sql as $$ select pg_catalog.timestamptz '-infinity' $$;
  create function odd.clock_timestamp() returns timestamptz language sql as $$ select pg_catalog.timestamptz '-infinity' $$;
  create function odd.to_timestamp(float8) returns timestamptz language sql as $$ select pg_catalog.timestamptz '-infinity' $$;
  create function odd.to_timestamp(numeric) returns timestamptz language sql as $$ select pg_catalog.timestamptz '-infinity' $$;
  create function odd.floor(numeric) returns numeric language sql as $$ select 0.0 $$;
  create function odd.hashtext(text) returns int language sql as $$ select 1 $$;
  create function odd.substr(text, int) returns text language sql as $$ select '' $$;
  create function odd.cardinality(anyarray) returns int language sql as $$ select 0 $$`

/** Letters before digits, and capitals first: no order of texts is as in C. */
export const ODD_LOCALE =
  "template template0 encoding 'UTF8' locale 'C' locale_provider icu icu_locale 'en-u-kf-upper-kr-latn-digit'"

/** How a test connects to look and to force races: with time, and to the database's own ways otherwise. */
export const AS_TEST = [
  'statement_timeout=0',
  'transaction_timeout=0',
  'lock_timeout=0',
  'idle_session_timeout=0',
  'idle_in_transaction_session_timeout=0',
  'default_transaction_isolation=read\\ committed',
  'search_path=public,odd',
  'extra_float_digits=1',
  'quote_all_identifiers=off',
]
/** And to read times and figures as the driver understands them. */
export const AS_READER = [
  ...AS_TEST,
  'array_nulls=on',
  'datestyle=ISO',
  'timezone=UTC',
  'intervalstyle=postgres',
  'bytea_output=hex',
]

export const withOptions = (url: string, settings: readonly string[]): string => {
  const there = new URL(url)
  there.searchParams.set('options', settings.map(setting => `-c ${setting}`).join(' '))
  return there.href
}

/** `name = value`, as `set` and `alter database … set` take it. */
const assignments = (settings: Readonly<Record<string, string>>) =>
  Object.entries(settings).map(([name, value]) =>
    name === 'search_path' || name === 'datestyle' ? `${name} = ${value}` : `${name} = '${value}'`,
  )

/** Everything for the database of this name; holds for connections made later. `isPooled`: not what would be refused there. */
export async function makeOdd(admin: pg.Client, name: string, { isPooled = false } = {}): Promise<void> {
  const { rows } = await admin.query('select name from pg_settings where name = any ($1)', [
    Object.keys(NEEDED),
  ])
  const known = new Set(rows.map(row => row.name))
  const needed = Object.entries(NEEDED).filter(([setting]) => known.has(setting) && !isPooled)
  for (const assignment of assignments({ ...SETTINGS, ...Object.fromEntries(needed) }))
    await admin.query(`alter database ${name} set ${assignment}`)
}

/** This session, as one of a user who likes it so. The driver knows no other encoding than its own. */
export async function makeOddSession(client: pg.Client): Promise<void> {
  const { client_encoding: _, ...settings } = SETTINGS
  const { search_path } = NEEDED
  for (const assignment of assignments({ ...settings, search_path: String(search_path) }))
    await client.query(`set ${assignment}`)
}

export const addShadows = (client: pg.Client) => client.query(SHADOWS)
