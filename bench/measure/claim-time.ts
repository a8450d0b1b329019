/** Owns how long the calls take by which workers get their jobs, as Postgres counts them. */
import type { Database } from '../stores/database.ts'

export interface ClaimCalls {
  calls: number
  ms: number
}

/** All of them since the database was made. A worker settles and claims in one call. */
export async function readClaimCalls(database: Database): Promise<ClaimCalls> {
  if (!database.hasStatements) throw new Error('pg_stat_statements is needed: run on a server of our own')
  const [row] = await database.query(`
    select coalesce(sum(s.calls), 0)::float8 as calls, coalesce(sum(s.total_exec_time), 0)::float8 as ms
    from pg_stat_statements s join pg_database d on d.oid = s.dbid
    where d.datname = current_database() and s.toplevel and s.query ~ '\\.\\w*claim\\w*\\('`)
  const calls = { calls: row?.['calls'] as number, ms: row?.['ms'] as number }
  if (calls.calls === 0) throw new Error('no statement looks like a claim')
  return calls
}
