/** A parent for tests: starts both stores, prints what it got as one line of JSON, and lives until it is killed. */
import { startPostgres, startRedis } from '../../src/dev/index.ts'

const began = Date.now()
const [postgres, redis] = await Promise.all([startPostgres(), startRedis()])
const { pid, dataDir, url, choice } = postgres
console.log(
  JSON.stringify({
    ms: Date.now() - began,
    postgres: { pid, dataDir, url, choice },
    redis: { pid: redis.pid, dataDir: redis.dataDir, url: redis.url, choice: redis.choice },
  }),
)
if (process.argv[2] !== 'leave') setInterval(() => {}, 60_000)
