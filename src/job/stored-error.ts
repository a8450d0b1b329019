/** Owns the form in which an error is kept with its job: bounded, storable, whatever was thrown. */
import { inspect } from 'node:util'
import { LongshoreError } from './errors.ts'
import type { StoredError } from './job.ts'

const MESSAGE_LENGTH = 2000
const STACK_LENGTH = 8000

/** An error of longshore's own, from a text that may hold anything. */
export function storedError(code: string, message: string): StoredError {
  return { code, message: storable(message, MESSAGE_LENGTH) }
}

/** Never throws itself: a hostile object may do so wherever it is touched. */
export function toStoredError(thrown: unknown): StoredError {
  try {
    return describe(thrown)
  } catch {
    return { code: 'HANDLER_FAILED', message: 'the handler threw something that cannot be described' }
  }
}

/** The message of whatever was thrown. */
export const messageOf = (thrown: unknown): string => toStoredError(thrown).message

function describe(thrown: unknown): StoredError {
  if (!(thrown instanceof Error)) {
    const shown = inspect(thrown, { depth: 2, breakLength: Infinity })
    return {
      ...storedError('HANDLER_FAILED', `the handler threw something that is not an Error: ${shown}`),
      name: 'NotAnError',
    }
  }
  const stored: StoredError = {
    ...storedError(thrown instanceof LongshoreError ? thrown.code : 'HANDLER_FAILED', String(thrown.message)),
    name: storable(String(thrown.name), 200),
  }
  if (typeof thrown.stack === 'string') stored.stack = storable(thrown.stack, STACK_LENGTH)
  return stored
}

/** Without what Postgres cannot hold, and no longer than it needs to be. */
export function storable(text: string, longest: number): string {
  const cut = text.length > longest ? `${text.slice(0, longest - 1)}…` : text
  return cut.replaceAll('\u0000', '\ufffd').toWellFormed()
}
