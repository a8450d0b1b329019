/**
 * Owns the form in which an error is stored with its job and logged, whatever was thrown: with its causes and stacks, bounded,
 * without credentials and without what Postgres cannot hold.
 */
import { inspect, types } from 'node:util'
import { withoutCredentials } from './credentials.ts'
import { LongshoreError } from './errors.ts'
import type { StoredCause, StoredError } from './job.ts'

const MESSAGE_LENGTH = 2000
const STACK_LENGTH = 8000
const NAME_LENGTH = 200
/** UTF-8 of one error and all that is behind it; the first come first. */
const MOST_BYTES = 16 * 1024
const MOST_CAUSES = 8
/** Of one AggregateError. */
const MOST_ERRORS = 10

const NOT_AN_ERROR = 'NotAnError'

/** An error of longshore's own, from a text that may hold anything. */
export function storedError(code: string, message: string): StoredError {
  return { code, message: safeText(message, MESSAGE_LENGTH) }
}

/** Never throws itself: a hostile object may do so wherever it is touched. */
export function toStoredError(thrown: unknown): StoredError {
  const { code, message, ...rest } = describeThrown(thrown)
  if (code !== undefined && isA(thrown, LongshoreError)) return { code, message, ...rest }
  const isError = rest.name !== NOT_AN_ERROR
  return {
    ...storedError(
      'HANDLER_FAILED',
      isError ? message : `the handler threw something that is not an Error: ${message}`,
    ),
    ...rest,
    ...(code === undefined ? {} : { thrownCode: code }),
  }
}

/** The message of whatever was thrown. */
export const messageOf = (thrown: unknown): string => describeThrown(thrown).message

/** Whatever was thrown, with what is behind it. Never throws itself. */
export const describeThrown = (thrown: unknown): StoredCause => describe(thrown, { bytes: MOST_BYTES }, [])

/** `instanceof` for what a handler threw: asking a hostile proxy can throw. */
export const isA = <T>(thrown: unknown, type: new (...args: never[]) => T): thrown is T =>
  readHostile(() => thrown instanceof type) ?? false

/** `above`: the errors that this one is behind. */
function describe(thrown: unknown, room: Room, above: readonly unknown[]): StoredCause {
  if (above.includes(thrown)) return leftOut('an error that stands above: the causes go round in a circle')
  if (above.length > MOST_CAUSES || room.bytes <= 0) return leftOut('what is behind this error')
  const isError = readHostile(() => types.isNativeError(thrown)) || isA(thrown, Error)
  if (!isError) {
    const shown = readHostile(() => inspect(thrown, { depth: 2, breakLength: Infinity }))
    return { name: NOT_AN_ERROR, message: take(room, shown ?? INDESCRIBABLE, MESSAGE_LENGTH) }
  }
  const error = thrown as Error & { code?: unknown; errors?: unknown }
  const text = (read: () => unknown, longest: number) =>
    take(room, readHostile(() => String(read())) ?? INDESCRIBABLE, longest)
  const described: StoredCause = {
    name: text(() => error.name, NAME_LENGTH),
    message: text(() => error.message, MESSAGE_LENGTH),
  }
  const code = readHostile(() => error.code)
  if (typeof code === 'string' || typeof code === 'number') described.code = text(() => code, NAME_LENGTH)
  const stack = readHostile(() => error.stack)
  // Not all that is left: a cause says more than the end of a stack.
  if (typeof stack === 'string') described.stack = take(room, stack, STACK_LENGTH, room.bytes / 2)
  const path = [...above, thrown]
  const cause = readHostile(() => error.cause)
  if (cause !== undefined && cause !== null) described.cause = describe(cause, room, path)
  const errors = isA(error, AggregateError) ? readHostile(() => [...error.errors]) : undefined
  if (errors && errors.length > 0) {
    described.errors = errors.slice(0, MOST_ERRORS).map(each => describe(each, room, path))
    if (errors.length > MOST_ERRORS)
      described.errors.push(leftOut(`${errors.length - MOST_ERRORS} more errors`))
  }
  return described
}

/** The stack of an error and of what is behind it, one below the other, as Node prints them. */
export function stackOf(error: StoredError | StoredCause): string {
  const { name = error.code, message, stack, cause, errors = [] } = error
  const code = 'thrownCode' in error ? error.thrownCode : error.code
  const own = code === 'HANDLER_FAILED' ? undefined : code
  const head = stack ?? `${name}: ${message}`
  return [
    own === undefined || head.includes(own) ? head : `${head}\n    code: ${own}`,
    ...errors.map(each => `Error of several: ${stackOf(each)}`),
    ...(cause ? [`Caused by: ${stackOf(cause)}`] : []),
  ].join('\n')
}

const INDESCRIBABLE = 'something that cannot be described'
const leftOut = (what: string): StoredCause => ({ name: 'LeftOut', message: `left out: ${what}` })

/** Undefined where looking throws. */
function readHostile<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}

/** How much more of an error is kept. */
interface Room {
  bytes: number
}

function take(room: Room, text: string, longest: number, mostBytes = room.bytes): string {
  let taken = safeText(text, longest)
  // A UTF-16 unit takes three bytes at most.
  if (Buffer.byteLength(taken) > mostBytes) taken = safeText(taken, Math.max(1, Math.floor(mostBytes / 3)))
  room.bytes -= Buffer.byteLength(taken)
  return taken
}

const safeText = (text: string, longest: number): string =>
  storable(withoutCredentials(text.slice(0, 2 * longest)), longest)

/** Without what Postgres cannot hold, and no longer than it needs to be. */
export function storable(text: string, longest: number): string {
  const cut = text.length > longest ? `${text.slice(0, longest - 1)}…` : text
  return cut.replaceAll('\u0000', '\ufffd').toWellFormed()
}
