/** Warnings that are no violations: tables with dead rows, transactions that keep those, an upkeep without a leader, nearly as many queues as may be. */
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from './schema-name.ts'
import { asText } from './times.ts'

export interface TableSize {
  name: string
  /** With its indexes. */
  bytes: number
  liveRows: number
  /** Rows that are gone, and whose room is not free yet. By Postgres's own estimate, some moments old. */
  deadRows: number
}

/** The tables of the schema, the largest first. */
export async function readTables(db: Queryable, schema: string): Promise<TableSize[]> {
  const { rows } = await db.query(
    `select relname as name, pg_total_relation_size(relid) as bytes, n_live_tup as live, n_dead_tup as dead
     from pg_stat_all_tables where schemaname = $1 order by 2 desc, 1`,
    [schema],
  )
  return rows.map(row => ({
    name: String(row['name']),
    bytes: Number(row['bytes']),
    liveRows: Number(row['live']),
    deadRows: Number(row['dead']),
  }))
}

export interface ConcernBounds {
  graceMs: number
  maxDeadRows: number
  maxTransactionAgeMs: number
  tables: readonly TableSize[]
}

/** A sentence for each thing that a person should look at. */
export async function readConcerns(db: Queryable, schema: string, options: ConcernBounds): Promise<string[]> {
  const dead = options.tables
    .filter(({ deadRows, liveRows }) => deadRows > options.maxDeadRows && deadRows > 2 * liveRows)
    .map(
      ({ name, deadRows, liveRows, bytes }) =>
        `table ${name} has ${deadRows} dead rows for ${liveRows} live ones (${Math.ceil(bytes / 2 ** 20)} MB): ` +
        'autovacuum does not keep up; let it run more often, and look for transactions that are open for long',
    )
  const { rows } = await db.query(
    inSchema(
      schema,
      `select format('nobody does the upkeep (due jobs, rescue, groups, history)%s: start a worker or longshore relay',
         -- Who stops in order leaves no time behind.
         case when isfinite(l.expires_at) then ' since ' || ${asText('l.expires_at')} end) as concern
       from longshore.leader l
       where l.expires_at < clock_timestamp() - $1::int * interval '1 millisecond' and exists (select from longshore.jobs)
       union all
       select format('%s has had a transaction open since %s: what is deleted meanwhile takes room until it ends', o.who,
         ${asText('o.since')})
       from (
         select format('connection %s (%s)', a.pid, coalesce(nullif(a.application_name, ''), 'no name')) as who,
           a.xact_start as since
         from pg_stat_activity a
         where a.datname = current_database() and coalesce(a.backend_xid, a.backend_xmin) is not null
           and a.backend_type = 'client backend'
         union all
         -- When those of other users began is told to few; the function knows, not whose it is.
         select format('somebody whom %s is not shown (pg_stat_activity, pg_prepared_xacts)', current_user), t.since
         from longshore.oldest_transaction() as t(since)
         where not exists (select from pg_stat_activity a where a.datname = current_database() and a.xact_start = t.since)
       ) o
       where o.since < clock_timestamp() - $2::int * interval '1 millisecond'
       union all
       select format('there are %s queues, and at most %s are possible: longshore queues --max allows more', q.queues, s.max_queues)
       from longshore.settings s
       cross join lateral (
         select count(distinct l.queue) as queues from longshore.lanes l where l.concurrency_key = ''
       ) q
       where q.queues >= 0.9 * s.max_queues
       union all
       select format('lanes and tasks that are not used are not forgotten since %s: look for transactions, also prepared ones, that are open for days in '
         'any database of the server', ${asText('f.void_from')})
       from longshore.forgetting f where f.void_from is not null
       union all
       select format('%I lacks what only an administrator can grant, so transactions of other users are not seen, and claims whose answer nobody '
         'reads are not broken off: grant pg_read_all_stats, pg_signal_backend to %1$I', o.rolname)
       from pg_proc p join pg_roles o on o.oid = p.proowner
       -- A role that migrate made, not a user who owns the schema.
       where p.oid = 'longshore.oldest_transaction'::regproc and not o.rolcanlogin
         and not (pg_has_role(o.oid, 'pg_read_all_stats', 'usage') and pg_has_role(o.oid, 'pg_signal_backend', 'usage'))`,
    ),
    [options.graceMs, options.maxTransactionAgeMs],
  )
  return [...dead, ...rows.map(row => String(row['concern']))]
}
