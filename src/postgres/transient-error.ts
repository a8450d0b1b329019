/** Owns which failures of Postgres pass by themselves, so that trying again makes sense. */

const CODES = new Set([
  '25006', // read-only: a standby, until the failover is done
  '40001', // serialization failure
  '40P01', // deadlock
  '53300', // too many connections
  '55P03', // lock not available in time
  '57014', // cancelled, by a time limit of the server or a pooler
  '57P01', // shut down by an administrator
  '57P02', // crash shutdown
  '57P03', // starting up
  'EAI_AGAIN',
  'ECONNREFUSED',
  'ECONNRESET',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EPIPE',
  'ETIMEDOUT',
])

/** Errors of the driver itself carry no code. */
const MESSAGES =
  /connection terminated|connection ended|timeout expired|query read timeout|client has encountered a connection error/i

export function isTransientError(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  if (error.cause instanceof Error) return isTransientError(error.cause)
  const code = (error as { code?: unknown }).code
  if (typeof code === 'string') return CODES.has(code) || code.startsWith('08')
  return MESSAGES.test(error.message)
}
