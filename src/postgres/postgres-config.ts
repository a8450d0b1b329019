/** How a user says where Postgres is; in types of our own, so that users need not have those of the driver. */
import type { ConnectionOptions } from 'node:tls'

/** A connection string, or the settings one by one. */
export type PostgresConfig = string | PostgresSettings

export interface PostgresSettings {
  connectionString?: string
  host?: string
  port?: number
  user?: string
  password?: string | (() => string | Promise<string>)
  database?: string
  /** True, or the options of `node:tls`. */
  ssl?: boolean | ConnectionOptions
  /** Shown in `pg_stat_activity`. Default `'longshore'`. */
  application_name?: string
}
