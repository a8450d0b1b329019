/**
 * Owns the transaction of one step of a migration: one process at a time, with settings of its own, for a second at most where it must wait
 * for a table; and says which transaction holds that when its patience is over.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { LongshoreError } from '../job/errors.ts'
import type { Queryable } from '../job/queryable.ts'
import { pauseMs } from '../runtime/retry.ts'
import { actAsOwner } from './roles.ts'

/** How long a step waits for a lock. Other transactions queue behind it; then it lets them go first. */
const LOCK_TIMEOUT = '1s'
const PAUSES = { firstMs: 500, maxMs: 2000 }

/**
 * What the texts are read with, for this transaction, behind a pooler too: views and some functions are stored as they were understood. A
 * step may take long.
 */
const AS_USUAL = `
  select pg_catalog.set_config(s.name, p.value, true)
  from (values ('search_path', 'pg_catalog'), ('standard_conforming_strings', 'on'), ('datestyle', 'ISO'), ('timezone', 'UTC'),
    ('client_min_messages', 'notice'), ('quote_all_identifiers', 'off'), ('statement_timeout', '0'), ('lock_timeout', '0'),
    ('idle_in_transaction_session_timeout', '0'), ('transaction_timeout', '0')) as p(name, value)
  join pg_catalog.pg_settings s on pg_catalog.lower(s.name) = p.name`

export interface As {
  /** Whatever is made belongs to the owner role, where there is one. Default true. */
  asOwner?: boolean
}

export async function inLockedTransaction<T>(
  client: Queryable,
  schema: string,
  patienceMs: number,
  run: () => Promise<T>,
  as: As = {},
): Promise<T> {
  const until = performance.now() + patienceMs
  for (let tries = 1; ; tries++) {
    try {
      return await inTransaction(client, schema, run, as)
    } catch (error) {
      const { code } = error as { code?: unknown }
      if (code !== '55P03' && code !== '40P01') throw error
      if (performance.now() >= until) throw await explainHeld(client, schema, error)
      await pause(pauseMs(tries, PAUSES))
    }
  }
}

async function inTransaction<T>(
  client: Queryable,
  schema: string,
  run: () => Promise<T>,
  { asOwner = true }: As,
): Promise<T> {
  await client.query('begin isolation level read committed')
  try {
    await client.query(AS_USUAL)
    await client.query("select pg_advisory_xact_lock(hashtext('longshore migrate'), hashtext($1))", [schema])
    await client.query(`set local lock_timeout = '${LOCK_TIMEOUT}'`)
    if (asOwner) await actAsOwner(client, schema)
    const done = await run()
    await client.query('commit')
    return done
  } catch (error) {
    await client.query('rollback').catch(() => undefined) // the first error says more
    throw error
  }
}

async function explainHeld(client: Queryable, schema: string, cause: unknown): Promise<LongshoreError> {
  const { rows } = await client.query(
    `select distinct a.pid from pg_locks l join pg_stat_activity a on a.pid = l.pid join pg_class c on c.oid = l.relation
     where l.granted and c.relnamespace = $1::regnamespace and a.pid <> pg_backend_pid() and a.xact_start < now() - interval '1 second'
       and a.wait_event_type is distinct from 'Lock'
     order by 1 limit 10`,
    [`"${schema}"`],
  )
  const held = rows.length > 0 ? ` (process ${rows.map(row => row['pid']).join(', ')} of Postgres)` : ''
  return new LongshoreError(
    'STORE_UNAVAILABLE',
    `a table of schema "${schema}" that this migration changes is held by an open transaction${held}: end it, and migrate again; the steps before are done`,
    { cause },
  )
}
