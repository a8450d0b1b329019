/** Real stores on a bare machine, for `longshore dev`, the demo, tests and benchmarks. */
export { type PostgresOptions, startPostgres } from './postgres/start-postgres.ts'
export { type RedisOptions, startRedis } from './redis/start-redis.ts'
export {
  type RedisCluster,
  type RedisClusterOptions,
  startRedisCluster,
} from './redis/start-redis-cluster.ts'
export type { Store, StoreOptions } from './store.ts'
