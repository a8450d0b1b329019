/** Owns what Postgres has written so far, over all databases: bytes of WAL and transactions that wrote. */
import type { Database } from '../stores/database.ts'

export interface Writes {
  walBytes: number
  /** Transaction ids that were given out. Transactions that only read get none. */
  transactions: number
}

/** Exact at once, unlike the statistics views, which backends fill up to a second later. */
export async function readWrites(database: Database): Promise<Writes> {
  const [row] = await database.query(`
    select (pg_current_wal_insert_lsn() - '0/0')::float8 as wal,
      pg_snapshot_xmax(pg_current_snapshot())::text::float8 as transactions`)
  return { walBytes: row?.['wal'] as number, transactions: row?.['transactions'] as number }
}
