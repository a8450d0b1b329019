import type { ThreadHandler } from 'longshore'
import type { countPrimes } from './thread-job.ts'

// Runs in a thread of the worker: it may keep a processor busy, and even hang.
export default (({ payload }, { signal }) => {
  let primes = 0
  for (let n = 2; n <= payload.upTo; n++) {
    if (n % 1000 === 0) signal.throwIfAborted() // works without an await
    if (isPrime(n)) primes++
  }
  return { primes }
}) satisfies ThreadHandler<typeof countPrimes>

function isPrime(n: number): boolean {
  for (let by = 2; by * by <= n; by++) if (n % by === 0) return false
  return true
}
