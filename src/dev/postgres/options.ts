/** Owns what a caller may ask of a Postgres beyond what every store knows. */
import type { Store, StoreOptions } from '../store.ts'
import type { PostgresSettings } from './configuration.ts'

export interface PostgresOptions extends StoreOptions {
  /** Postgres settings on top of ours, such as `{ fsync: false, shared_buffers: '1GB' }`. Default: none. */
  readonly settings?: PostgresSettings
  /** Start as a streaming replica of this server, which has to be one of ours. Default: a primary. */
  readonly replicaOf?: Store
}
