/** Rebuilds, on this side, an error that was thrown in a thread: with the same name, message, stack, code and causes. */
import { type ErrorCode, LongshoreError, NonRetryableError } from '../job/errors.ts'

/** See `pack` in job-thread.mjs. */
export type PackedThrown =
  | { isError: false; value: unknown }
  | {
      isError: true
      isLongshore: boolean
      name: string
      message: string
      stack: string | undefined
      /** Its own properties, `code` among them. */
      own: Record<string, unknown>
      cause: PackedThrown | undefined
      /** Of an AggregateError. */
      errors: PackedThrown[] | undefined
    }

export function unpackThrown(packed: PackedThrown): unknown {
  if (!packed.isError) return packed.value
  const error = errorOf(packed)
  for (const [key, value] of Object.entries({ ...packed.own, name: packed.name, stack: packed.stack })) {
    Object.defineProperty(error, key, {
      value,
      writable: true,
      configurable: true,
      enumerable: key in packed.own,
    })
  }
  return error
}

function errorOf({ isLongshore, message, own, cause, errors }: PackedThrown & { isError: true }): Error {
  const options = cause ? { cause: unpackThrown(cause) } : {}
  if (errors) return new AggregateError(errors.map(unpackThrown), message, options)
  if (!isLongshore) return new Error(message, options)
  if (own['code'] === 'NOT_RETRYABLE') return new NonRetryableError(message, options)
  return new LongshoreError(own['code'] as ErrorCode, message, options)
}
