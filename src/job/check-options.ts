/** Owns the checks that all options share. A message names the option and says what it may be. */
import { type ErrorCode, LongshoreError } from './errors.ts'
import { quoted, shown } from './shown.ts'
import { messageOf } from './stored-error.ts'

/** What `read` returns, which looks at what a user gave: that may throw where it is touched. */
export function readGiven<T>(code: ErrorCode, what: string, read: () => T): T {
  try {
    return read()
  } catch (error) {
    if (error instanceof LongshoreError) throw error
    throw new LongshoreError(code, `${what}: the options cannot be read: ${messageOf(error)}`, {
      cause: error,
    })
  }
}

export function checkObject(code: ErrorCode, what: string, options: unknown): asserts options is object {
  if (typeof options === 'object' && options !== null && !Array.isArray(options)) return
  throw new LongshoreError(code, `${what} must be an object of options; got ${shown(options)}`)
}

/** Refuses what is no object of options, and any option that is not known: a misspelt one would silently do nothing. */
export function checkOptions(
  code: ErrorCode,
  what: string,
  options: unknown,
  known: readonly string[],
): asserts options is object {
  checkObject(code, what, options)
  const unknown = Object.keys(options).find(key => !known.includes(key))
  if (unknown === undefined) return
  throw new LongshoreError(
    code,
    `${what}: unknown option ${quoted(unknown)}; options are ${known.join(', ')}`,
  )
}

export function checkWhole(
  code: ErrorCode,
  what: string,
  value: unknown,
  least: number,
  most: number,
): number {
  if (Number.isInteger(value) && (value as number) >= least && (value as number) <= most)
    return value as number
  throw new LongshoreError(
    code,
    `${what} must be a whole number from ${least} to ${most}; got ${shown(value)}`,
  )
}

export function checkOneOf(code: ErrorCode, what: string, value: unknown, known: readonly string[]): void {
  if (known.includes(value as string)) return
  throw new LongshoreError(code, `${what} must be one of ${known.join(', ')}; got ${shown(value)}`)
}

export function checkSignal(signal: unknown): void {
  if (signal === undefined || signal instanceof AbortSignal) return
  throw new LongshoreError('CONFIG_INVALID', `signal must be an AbortSignal; got ${shown(signal)}`)
}

/** A list with something in it. */
export function checkList<T>(code: ErrorCode, what: string, value: readonly T[], most: number): readonly T[] {
  if (Array.isArray(value) && value.length >= 1 && value.length <= most) return value
  const got = Array.isArray(value) ? `${value.length} items` : shown(value)
  throw new LongshoreError(code, `${what} must be a list of 1 to ${most} items; got ${got}`)
}
