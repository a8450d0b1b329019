/** The seam to Postgres: anything with a `query` method, so that callers own connections and transactions. */
export interface Queryable {
  query(text: string, values?: unknown[]): Promise<{ rows: Record<string, unknown>[] }>
}

/** The one connection that a caller's transaction runs on. What cannot be one is refused by its type where that tells. */
export interface Transaction extends Queryable {
  /** `T`: in a transaction, `I`: in none, `E`: in one that has failed. Clients of `pg` have it; in an adapter it saves a statement. */
  getTransactionStatus?(): string | null
  /** Of a pool: each statement may go to another connection. */
  totalCount?: never
  /** Of TypeORM, whose `query` returns the rows themselves. */
  getRepository?: never
  isTransactionActive?: never
  /** Of pg-promise, the same. */
  oneOrNone?: never
}
