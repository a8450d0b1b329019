/**
 * Owns what may be stored as JSON. Refuses, with the path to it, whatever Postgres cannot keep or JSON would silently
 * change: NaN, Infinity, bigint, functions, symbols, invalid dates, objects without a form in JSON (Map, Promise, Error, …),
 * cycles, `\u0000` and lone surrogates. Only -0 becomes 0.
 */
import { LongshoreError } from './errors.ts'
import { cut } from './shown.ts'
import { messageOf } from './stored-error.ts'

export type EncodedJson = { ok: true; text: string } | { ok: false; problem: string }

const MAX_DEPTH = 200

/** What JSON writes as `{}`, or as an object of numbered bytes. */
const LOST = [
  Map,
  Set,
  WeakMap,
  WeakSet,
  Promise,
  RegExp,
  Error,
  ArrayBuffer,
  DataView,
  Object.getPrototypeOf(Uint8Array),
] as const

/** JSON text of a value of at most `maxBytes`, or what is wrong with it. `undefined` inside objects is left out. */
export function encodeJson(value: unknown, maxBytes: number): EncodedJson {
  try {
    return encode(value, maxBytes)
  } catch (error) {
    // A getter, a proxy or a toJSON method of the value itself.
    return { ok: false, problem: `cannot be written as JSON: ${messageOf(error)}` }
  }
}

/**
 * A payload as Postgres stores it, which writes numbers without an exponent. One of 309 digits may be beyond what JavaScript holds: the
 * handler would be given Infinity. Not asked at the enqueue, where it would cost every job of a large batch.
 */
export function parsePayload(text: string): unknown {
  const value: unknown = JSON.parse(text)
  const problem = /\d{309}/.test(text) ? findProblem(value, '', 0) : undefined
  if (problem)
    throw new LongshoreError('PAYLOAD_INVALID', `the payload ${problem}: write large numbers as texts`)
  return value
}

function encode(value: unknown, maxBytes: number): EncodedJson {
  const problem = findProblem(value, '', 0)
  if (problem) return { ok: false, problem }
  const text = JSON.stringify(value) as string | undefined
  if (text === undefined) return { ok: false, problem: 'is undefined, which JSON cannot hold' }
  // A getter or a toJSON method may have said something else this time; lone surrogates and NUL show as escapes.
  if (text.includes('\\u')) {
    const inText = findProblem(JSON.parse(text), '', 0)
    if (inText) return { ok: false, problem: inText }
  }
  if (text.length * 3 > maxBytes) {
    const bytes = Buffer.byteLength(text)
    if (bytes > maxBytes) {
      return {
        ok: false,
        problem: `is ${bytes} bytes of JSON, the limit is ${maxBytes}: store large data elsewhere and pass a reference`,
      }
    }
  }
  return { ok: true, text }
}

function findProblem(value: unknown, path: string, depth: number): string | undefined {
  switch (typeof value) {
    case 'string':
      return findTextProblem(value, path)
    case 'number':
      return Number.isFinite(value) ? undefined : `${at(path)} is ${value}, which JSON cannot hold`
    case 'boolean':
      return undefined
    case 'undefined':
      return path === '' || path.endsWith(']')
        ? `${at(path)} is undefined, which JSON cannot hold`
        : undefined
    case 'object':
      return value === null ? undefined : findObjectProblem(value, path, depth)
    default:
      return `${at(path)} is a ${typeof value}, which JSON cannot hold`
  }
}

function findTextProblem(value: string, path: string): string | undefined {
  if (value.includes('\u0000')) return `${at(path)} holds the character \\u0000, which Postgres cannot store`
  if (!value.isWellFormed()) return `${at(path)} holds half of a surrogate pair, which Postgres cannot store`
  return undefined
}

/** `isWritten`: it is what a toJSON method returned, which JSON does not ask again. */
function findObjectProblem(
  value: object,
  path: string,
  depth: number,
  isWritten = false,
): string | undefined {
  if (depth > MAX_DEPTH) return `${at(path)} is nested deeper than ${MAX_DEPTH} levels, or refers to itself`
  const { toJSON } = value as { toJSON?: unknown }
  if (typeof toJSON === 'function' && !isWritten) {
    if (value instanceof Date && Number.isNaN(value.getTime()))
      return `${at(path)} is an invalid date, which JSON cannot hold`
    const written: unknown = toJSON.call(value, '')
    return typeof written === 'object' && written !== null
      ? findObjectProblem(written, path, depth + 1, true)
      : findProblem(written, path, depth)
  }
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      const problem = findProblem(value[i], `${path}[${i}]`, depth + 1)
      if (problem) return problem
    }
    return undefined
  }
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null) {
    const kind = LOST.find(kind => value instanceof kind)
    if (kind) {
      return `${at(path)} is a ${kind.name}, of which JSON would lose the content: pass an array, an object or a text`
    }
    if (value instanceof Number) return findProblem(value.valueOf(), path, depth)
  }
  for (const key in value) {
    const problem =
      findTextProblem(key, `${path}.${key}`) ??
      findProblem((value as Record<string, unknown>)[key], `${path}.${key}`, depth + 1)
    if (problem) return problem
  }
  return undefined
}

const at = (path: string) => (path === '' ? 'the value' : cut(path.replace(/^\./, '')))
