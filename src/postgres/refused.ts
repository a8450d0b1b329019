/** Owns how what longshore's own SQL refuses becomes an error of longshore's own. */
import { type ErrorCode, LongshoreError } from '../job/errors.ts'

/** What the functions raise. */
const REFUSED: Readonly<Record<string, ErrorCode>> = {
  LS001: 'CONSTRAINT_INVALID',
  LS002: 'GROUP_NOT_FOUND',
  LS003: 'GROUP_ENDED',
  LS004: 'GROUP_INVALID',
  LS005: 'PERMISSION_DENIED',
  LS006: 'PERMISSION_DENIED',
  LS007: 'LEASE_LOST',
  LS008: 'TOO_MANY_WAITS',
  LS009: 'TRANSACTION_INVALID',
  LS010: 'JOB_INVALID',
  LS011: 'TOO_MANY_QUEUES',
}

const READ_ONLY = '25006'

/** Turns that into an error which says what to do; other errors are thrown on. */
export function explainRefusal(error: unknown): never {
  const given = error instanceof Error ? String((error as { code?: unknown }).code) : ''
  if (given === READ_ONLY) {
    throw new LongshoreError(
      'STORE_UNAVAILABLE',
      `Postgres may only be read: ${(error as Error).message}. Lead the connection string to the primary; there, set default_transaction_read_only = off`,
      { cause: error },
    )
  }
  const code = REFUSED[given]
  if (code === undefined) throw error
  const { hint, message } = error as Error & { hint?: unknown }
  const text = message.replace(/^longshore: /, '')
  throw new LongshoreError(code, typeof hint === 'string' ? `${text}. ${hint.replace(/\.$/, '')}` : text, {
    cause: error,
  })
}
