/** The seam to Postgres: anything with a `query` method, so that callers own connections and transactions. */
export interface Queryable {
  query(text: string, values?: unknown[]): Promise<{ rows: Record<string, unknown>[] }>
}
