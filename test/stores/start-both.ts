/** A parent for tests: starts both stores, prints what it got as one line of JSON, and lives until it is killed. */
import { startPostgres, startRedis } from '../../src/dev/index.ts'

const began = Date.now()
const stores = await Promise.all([startPostgres(), startRedis()])
const [postgres, redis] = stores.map(({ pid, dataDir, url, choice }) => ({ pid, dataDir, url, choice }))
console.log(JSON.stringify({ ms: Date.now() - began, postgres, redis }))
if (process.argv[2] !== 'leave') setInterval(() => {}, 60_000)
