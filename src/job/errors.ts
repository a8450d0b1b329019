/**
 * Owns the catalogue of errors. A code is stable: programs may switch on it. A message names the value that
 * was wrong and says what to do next.
 */
import { cut } from './shown.ts'

export type ErrorCode =
  | 'CONFIG_INVALID'
  | 'COMPLETED_TWICE'
  | 'CONSTRAINT_INVALID'
  | 'DEPENDENCY_CANCELLED'
  | 'DEPENDENCY_FAILED'
  | 'GROUP_ENDED'
  | 'GROUP_INVALID'
  | 'GROUP_NOT_FOUND'
  | 'HANDLER_FAILED'
  | 'JOB_CANCELLED'
  | 'JOB_FAILED'
  | 'JOB_INVALID'
  | 'JOB_NOT_FOUND'
  | 'LEASE_LOST'
  | 'NOT_RETRYABLE'
  | 'PAYLOAD_INVALID'
  | 'PAYLOAD_REFUSED'
  | 'PERMISSION_DENIED'
  | 'POISONED'
  | 'PRODUCER_CLOSED'
  | 'RESULT_REFUSED'
  | 'SCHEMA_MISSING'
  | 'SCHEMA_NEWER'
  | 'SCHEMA_OUTDATED'
  | 'STORE_UNAVAILABLE'
  | 'STORE_UNSUPPORTED'
  | 'TASK_INVALID'
  | 'THREAD_CRASHED'
  | 'TIMEOUT'
  | 'TOO_MANY_QUEUES'
  | 'TOO_MANY_WAITS'
  | 'TRANSACTION_ENDED'
  | 'TRANSACTION_INVALID'
  | 'WAIT_TIMEOUT'
  | 'WORKER_STOPPED'

/** Each value in a message is cut by itself; this is for what is quoted from elsewhere. */
const MESSAGE_LENGTH = 10_000

export class LongshoreError extends Error {
  override readonly name: string = 'LongshoreError'

  constructor(
    readonly code: ErrorCode,
    message: string,
    options?: { cause?: unknown },
  ) {
    super(cut(message, MESSAGE_LENGTH), options)
  }
}

/** Thrown by a handler to end its job at once, however many attempts are left. */
export class NonRetryableError extends LongshoreError {
  override readonly name = 'NonRetryableError'

  constructor(message: string, options?: { cause?: unknown }) {
    super('NOT_RETRYABLE', message, options)
  }
}
