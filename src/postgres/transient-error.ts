/** Owns which failures of Postgres pass by themselves, so that trying again makes sense. */

/** Postgres is away, or will not do anything for now. */
const AWAY = new Set([
  '25006', // read-only: a standby, until the failover is done
  '25P03', // ended: idle in a transaction for too long
  '25P04', // ended: a transaction took too long
  '53100', // disk full
  '53200', // out of memory
  '53300', // too many connections
  '57P01', // shut down by an administrator
  '57P02', // crash shutdown
  '57P03', // starting up
  '57P05', // ended: idle for too long
  '58030', // input or output error
  'EAI_AGAIN',
  'ECONNREFUSED',
  'ECONNRESET',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EPIPE',
  'ETIMEDOUT',
])

/** Others are in the way, or it took too long. */
const HELD_UP = new Set([
  '40001', // serialization failure
  '40P01', // deadlock
  '55P03', // lock not available in time
  '57014', // cancelled, by a time limit of the server or a pooler
])

/** A migration has replaced a function between the parsing of a call and its run. */
const REPLACED: Readonly<Record<string, RegExp>> = {
  XX000: /cache lookup failed for (function|type|relation)/,
  // In the server's language.
  '42883': /\bOID\W{0,3}\d+/,
}

/** Errors of the driver itself carry no code. */
const MESSAGES =
  /connection terminated|connection ended|timeout expired|query read timeout|client has encountered a connection error/i

export function isTransientError(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  if (error.cause instanceof Error) return isTransientError(error.cause)
  const { code, constraint } = error as { code?: unknown; constraint?: unknown }
  // A partition was attached while this very row was on its way to the default one. Whatever else is checked has a name.
  if (code === '23514' && constraint === undefined) return true
  if (typeof code === 'string' && REPLACED[code]?.test(error.message)) return true
  return (typeof code === 'string' && HELD_UP.has(code)) || isAway(error)
}

/** Whether Postgres cannot be reached, or does nothing for anyone: it restarts, is full, or is not the primary yet. */
export function isAway(error: Error): boolean {
  const { code } = error as { code?: unknown }
  return typeof code === 'string' ? AWAY.has(code) || code.startsWith('08') : MESSAGES.test(error.message)
}

/** Whether Postgres rolled a call back because locks of others were in its way: what it did not get may be had at once. */
export function metLocks(error: unknown): boolean {
  const code = error instanceof Error ? (error as { code?: unknown }).code : undefined
  return code === '40P01' || code === '55P03'
}

/** Whether it was broken off by a time limit: less at once may get through. */
export function tookTooLong(error: unknown): boolean {
  const code = error instanceof Error ? (error as { code?: unknown }).code : undefined
  return code === '57014' || code === '25P04'
}

/** Whether Postgres refused the data itself: sending the same again cannot help. */
export function isDataError(error: unknown): boolean {
  const code = error instanceof Error ? String((error as { code?: unknown }).code) : ''
  return code.startsWith('22') || code.startsWith('54') || (code === '23514' && !isTransientError(error))
}
