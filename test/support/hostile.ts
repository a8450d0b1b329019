/**
 * What no honest caller passes, and names that one may. `LONGSHORE_SEED` repeats what is drawn at random, `LONGSHORE_RUNS` says how
 * often.
 */
import { randomInt } from 'node:crypto'
import fc from 'fast-check'
import { expect } from 'vitest'
import { LongshoreError } from '../../src/index.ts'

const SEED = Number(process.env['LONGSHORE_SEED'] ?? randomInt(2 ** 31))
const RUNS = process.env['LONGSHORE_RUNS']
/** On slow machines fewer rounds are enough. */
const ENOUGH_MS = 20_000

/** Runs a property as often as told; the seed is printed, and in the error too. */
export async function always<T extends unknown[]>(
  what: string,
  usualRuns: number,
  property: fc.IAsyncProperty<T>,
): Promise<void> {
  const runs = RUNS === undefined ? usualRuns : Number(RUNS)
  const limit = RUNS === undefined ? { interruptAfterTimeLimit: ENOUGH_MS } : {}
  process.stdout.write(`${what}: ${runs} rounds, LONGSHORE_SEED=${SEED}\n`)
  await fc.assert(property, { seed: SEED, numRuns: runs, endOnFailure: true, ...limit })
}

/** In every payload of these tests: it must not be found where payloads do not belong. */
export const SECRET = 'secret-5f1c'

/** Each is a new one, so that what one call does to it does not matter to the next. */
export const HOSTILE: Readonly<Record<string, () => unknown>> = {
  null: () => null,
  NaN: () => Number.NaN,
  Infinity: () => Number.POSITIVE_INFINITY,
  '-Infinity': () => Number.NEGATIVE_INFINITY,
  '-0': () => -0,
  '-1': () => -1,
  '1.5': () => 1.5,
  '1e308': () => 1e308,
  '2 ** 31': () => 2 ** 31,
  '2 ** 53': () => 2 ** 53,
  '-(2 ** 63)': () => -(2 ** 63),
  '10n': () => 10n,
  true: () => true,
  'an empty text': () => '',
  'a space': () => ' ',
  NUL: () => 'a\u0000b',
  'half a surrogate pair': () => 'a\ud800b',
  'a line break': () => 'a\nb',
  'a long text': () => 'x'.repeat(100_000),
  'an object with a long key': () => ({ ['k'.repeat(1_000_000)]: 1 }),
  'an SQL text': () => `'; drop schema longshore cascade; --`,
  'an empty list': () => [],
  'a list of nothing': () => [null, undefined],
  'a list of lists': () => [[], [[1]]],
  'an empty object': () => ({}),
  'an object without a prototype': () => Object.create(null),
  'an own __proto__': () => JSON.parse('{"__proto__": {"polluted": true}, "constructor": {"prototype": 1}}'),
  'a circle': () => {
    const circle: Record<string, unknown> = {}
    circle['self'] = circle
    return circle
  },
  'a symbol': () => Symbol('s'),
  'a function': () => () => 1,
  'an invalid date': () => new Date(Number.NaN),
  'a date far away': () => new Date(8.64e15),
  'a map': () => new Map([['a', 1]]),
  'a promise': () => Promise.resolve(1),
  'a text that throws': () => ({
    toString() {
      throw new Error('not in words')
    },
  }),
  'a number that throws': () => ({
    [Symbol.toPrimitive]() {
      throw new Error('not as a number')
    },
  }),
}

/** What a program throws by accident, or a store says, in place of what is wrong with the call. */
const RAW =
  /Cannot (read|convert|destructure|mix|use)|is not (a function|iterable|defined)|violates|invalid input|syntax error|null value in column|out of range|\bERR\b|evalsha|ZodError|Unexpected token|BigInt/

export function expectOwnError(error: unknown, about: string): void {
  expect(error, about).toBeInstanceOf(LongshoreError)
  const { message } = error as LongshoreError
  expect(message.length, about).toBeLessThan(2000)
  expect(message, about).not.toMatch(RAW)
}

/** Names that programs trip over. All of them are allowed. */
const NAMES = [
  '{}',
  '{a}b',
  '}:{',
  '*',
  'a*b?[c]',
  "it's",
  '"quoted"',
  '-- a comment',
  '$1',
  '%s %d %2A',
  '\\',
  'a\\nb',
  ' ',
  ':',
  'c:',
  'a,b=c',
  'longshore.jobs',
  '日本語',
  '👩‍👩‍👧',
  'שלום\u202eabc',
  '\u2028',
  '\ufeff',
  '\uffff',
  'é',
  'e\u0301',
  '__proto__',
  'constructor',
  'prototype',
  'toString',
  'null',
  'NaN',
  '<script>alert(1)</script>',
  '🎉'.repeat(50),
  'x'.repeat(100),
]

export const label: fc.Arbitrary<string> = fc
  .oneof(fc.constantFrom(...NAMES), fc.string({ unit: 'binary', minLength: 1, maxLength: 100 }))
  .filter(text => text.length <= 100 && !/\p{Cc}/u.test(text))

const key = fc.oneof(
  fc.constantFrom('__proto__', 'constructor', 'prototype', 'toJSON', 'then', 'length', '', ...NAMES),
  fc.string({ unit: 'binary', maxLength: 20 }).filter(text => !text.includes('\u0000')),
)
const leaf = fc.oneof(
  fc.constantFrom<unknown>(null, true, 0, -0, 1e308, -1e308, 5e-324, 1e-7, 2 ** 53 + 2, 1e21, 0.1 + 0.2),
  fc.double({ noNaN: true, noDefaultInfinity: true }),
  fc.constantFrom('\\u0000', '\\ud800', '\u2028\u2029', '\n\r\t', '\ufeff', SECRET, ...NAMES),
  fc.string({ unit: 'binary', maxLength: 50 }).filter(text => !text.includes('\u0000')),
)

/** Any value that JSON and Postgres can hold. */
export const legalPayload: fc.Arbitrary<unknown> = fc.letrec(tie => ({
  value: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    leaf,
    fc.array(tie('value'), { maxLength: 4 }),
    fc.array(fc.tuple(key, tie('value')), { maxLength: 4 }).map(entries => Object.fromEntries(entries)),
  ),
})).value

const throwing = (): never => {
  throw new Error('not today')
}

/** What cannot be stored as it is. */
const REFUSED: Readonly<Record<string, () => unknown>> = {
  NaN: () => Number.NaN,
  Infinity: () => Number.NEGATIVE_INFINITY,
  'a boxed NaN': () => Object(Number.NaN),
  'a bigint': () => 1n,
  'a symbol': () => Symbol(SECRET),
  'a function': () => throwing,
  NUL: () => `${SECRET}\u0000`,
  'half a pair': () => `\udc00${SECRET}`,
  'NUL in a key': () => ({ [`${SECRET}\u0000`]: 1 }),
  'a hole': () => Array(2),
  'an invalid date': () => new Date(Number.NaN),
  'a map': () => new Map([[SECRET, 1]]),
  'a set': () => new Set([SECRET]),
  'a promise': () => Promise.resolve(SECRET),
  'a pattern': () => /secret/,
  'an error': () => new Error(SECRET),
  bytes: () => new Uint8Array(4),
  'a circle': () => HOSTILE['a circle']?.(),
  'a long chain': () => Array.from({ length: 10_000 }).reduce<unknown>(inner => [inner], SECRET),
  'a getter that throws': () => Object.defineProperty({}, 'a', { enumerable: true, get: throwing }),
  'a proxy that throws': () => new Proxy({}, { ownKeys: throwing, get: throwing }),
  'toJSON that throws': () => ({ toJSON: throwing }),
  'toJSON to NaN': () => ({ toJSON: () => Number.NaN }),
  'toJSON to NUL': () => ({ toJSON: () => ({ a: [`${SECRET}\u0000`] }) }),
  'toJSON to a map': () => ({ toJSON: () => new Map() }),
  'toJSON without an end': () => {
    const self = { toJSON: () => ({ self }) }
    return self
  },
}

/** One of these, somewhere inside of what is fine. */
export const refusedPayload: fc.Arbitrary<{ name: string; value: unknown }> = fc
  .tuple(fc.constantFrom(...Object.keys(REFUSED)), fc.array(fc.option(key), { maxLength: 6 }))
  .map(([name, path]) => ({
    name: `${name} at ${JSON.stringify(path)}`,
    value: path.reduce<unknown>(
      // Those would make it another object altogether.
      (inner, key) =>
        key === null || key === 'toJSON' ? [SECRET, inner] : Object.fromEntries([[key, inner]]),
      REFUSED[name]?.(),
    ),
  }))
