/** A process with nothing but a thread that has loaded a TypeScript module and is idle: it ends by itself. */
import { createLogger } from '../../../src/runtime/logger.ts'
import { createThreadPool } from '../../../src/worker/thread-pool.ts'

const pool = createThreadPool({
  maxThreads: 1,
  memoryMb: undefined,
  abortGraceMs: 0,
  idleMs: 3_600_000,
  logger: createLogger('test'),
})
const module = new URL('../../../examples/count-primes.ts', import.meta.url).href
await pool.check([{ task: 'count-primes', module }])
process.stdout.write('loaded.\n')
