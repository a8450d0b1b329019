/** Owns the form in which an error is kept with its job: bounded, storable, whatever was thrown. */
import { inspect } from 'node:util'
import { LongshoreError } from './errors.ts'
import type { StoredError } from './job.ts'

const MESSAGE_LENGTH = 2000
const STACK_LENGTH = 8000

export function toStoredError(thrown: unknown): StoredError {
  if (!(thrown instanceof Error)) {
    return {
      code: 'HANDLER_FAILED',
      name: 'NotAnError',
      message: storable(
        `the handler threw something that is not an Error: ${inspect(thrown, { depth: 2, breakLength: Infinity })}`,
        MESSAGE_LENGTH,
      ),
    }
  }
  const stored: StoredError = {
    code: thrown instanceof LongshoreError ? thrown.code : 'HANDLER_FAILED',
    name: storable(String(thrown.name), 200),
    message: storable(String(thrown.message), MESSAGE_LENGTH),
  }
  if (typeof thrown.stack === 'string') stored.stack = storable(thrown.stack, STACK_LENGTH)
  return stored
}

/** Without what Postgres cannot hold, and no longer than it needs to be. */
function storable(text: string, longest: number): string {
  const cut = text.length > longest ? `${text.slice(0, longest - 1)}…` : text
  return cut.replaceAll('\u0000', '\ufffd').toWellFormed()
}
