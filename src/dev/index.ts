/** Real stores on a bare machine, for `longshore dev`, the demo, tests and benchmarks. */
export type { PostgresSettings } from './postgres/configuration.ts'
export type { PostgresOptions } from './postgres/options.ts'
export { startPostgres } from './postgres/start-postgres.ts'
export type { RedisOptions } from './redis/options.ts'
export { startRedis } from './redis/start-redis.ts'
export {
  type RedisCluster,
  type RedisClusterOptions,
  startRedisCluster,
} from './redis/start-redis-cluster.ts'
export type { Environment, Store, StoreOptions } from './store.ts'
