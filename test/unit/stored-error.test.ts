import { pino } from 'pino'
import { describe, expect, it } from 'vitest'
import { LongshoreError } from '../../src/index.ts'
import { messageOf, stackOf, toStoredError } from '../../src/job/stored-error.ts'
import { withSafeErrors } from '../../src/runtime/logger.ts'

const refused = () => Object.assign(new Error('connect ECONNREFUSED ::1:9'), { code: 'ECONNREFUSED' })

describe('an error that is stored', () => {
  it('[X29] keeps its causes, the errors of an AggregateError, and the code and stack of each', () => {
    const all = Object.assign(new AggregateError([refused(), 'a text'], ''), { code: 'ECONNREFUSED' })
    const stored = toStoredError(new TypeError('fetch failed', { cause: all }))
    const stack = expect.stringContaining('stored-error.test.ts')
    expect(stored).toEqual({
      code: 'HANDLER_FAILED',
      name: 'TypeError',
      message: 'fetch failed',
      stack,
      cause: {
        name: 'AggregateError',
        message: '',
        code: 'ECONNREFUSED',
        stack,
        errors: [
          { name: 'Error', message: 'connect ECONNREFUSED ::1:9', code: 'ECONNREFUSED', stack },
          { name: 'NotAnError', message: "'a text'" },
        ],
      },
    })
    const heads = stackOf(stored)
      .split('\n')
      .filter(line => !line.startsWith('    at '))
    expect(heads.map(line => line.trim())).toEqual([
      'TypeError: fetch failed',
      'Caused by: AggregateError:',
      'code: ECONNREFUSED',
      'Error of several: Error: connect ECONNREFUSED ::1:9',
      "Error of several: NotAnError: 'a text'",
    ])
  })

  it('[X29] tells the code of what was thrown from its own', () => {
    expect(toStoredError(refused())).toMatchObject({ code: 'HANDLER_FAILED', thrownCode: 'ECONNREFUSED' })
    const ours = toStoredError(new LongshoreError('TIMEOUT', 'late', { cause: { code: 5 } }))
    expect(ours).toMatchObject({ code: 'TIMEOUT', cause: { name: 'NotAnError', message: '{ code: 5 }' } })
    expect(ours).not.toHaveProperty('thrownCode')
    expect(toStoredError(Object.assign(new Error('x'), { code: { deep: 1 } }))).not.toHaveProperty(
      'thrownCode',
    )
  })

  it('[X29] says where causes go round in a circle', () => {
    const error = new Error('outer')
    error.cause = new Error('inner', { cause: error })
    const circle = { name: 'LeftOut', message: expect.stringContaining('circle') }
    expect(toStoredError(error)).toMatchObject({ cause: { message: 'inner', cause: circle } })
    const several = new AggregateError([], 'several')
    several.errors.push(several, new Error('one'))
    expect(toStoredError(several).errors).toMatchObject([circle, { message: 'one' }])
  })

  it('[X29] names a cause that two errors share in both places', () => {
    const cause = new Error('shared')
    const errors = [new Error('one', { cause }), new Error('two', { cause })]
    expect(toStoredError(new AggregateError(errors)).errors).toMatchObject([
      { message: 'one', cause: { message: 'shared' } },
      { message: 'two', cause: { message: 'shared' } },
    ])
  })

  it.each([
    ['a thousand causes', () => deep(1000)],
    ['a thousand errors with causes', () => new AggregateError(Array.from({ length: 1000 }, () => deep(20)))],
    [
      'a message of 10 MB',
      () => new Error('x'.repeat(10_000_000), { cause: new Error('y'.repeat(10_000_000)) }),
    ],
    [
      'a name, a code and a stack of a million',
      () =>
        Object.assign(new Error('x'), {
          name: '€'.repeat(1e6),
          code: '€'.repeat(1e6),
          stack: '€'.repeat(1e6),
        }),
    ],
  ])('[X29] is bounded: %s', (_, make) => {
    expect(Buffer.byteLength(JSON.stringify(toStoredError(make())))).toBeLessThan(24 * 1024)
  })

  it('[X29] says what it leaves out', () => {
    const { errors } = toStoredError(new AggregateError(Array.from({ length: 13 }, (_, n) => String(n))))
    expect(errors?.at(9)).toEqual({ name: 'NotAnError', message: "'9'" })
    expect(errors?.at(10)).toEqual({ name: 'LeftOut', message: 'left out: 3 more errors' })
    let last: unknown = toStoredError(deep(100))
    while ((last as { cause?: unknown }).cause) last = (last as { cause?: unknown }).cause
    expect(last).toEqual({ name: 'LeftOut', message: 'left out: what is behind this error' })
  })

  it('[X29] keeps what can be read of an error whose getters throw', () => {
    const throwing = (...keys: string[]) => {
      const error = new Error('said', { cause: 1 })
      for (const key of keys)
        Object.defineProperty(error, key, {
          get: () => {
            throw Object.create(null)
          },
        })
      return error
    }
    expect(toStoredError(throwing('cause', 'stack', 'code', 'name'))).toEqual({
      code: 'HANDLER_FAILED',
      name: 'something that cannot be described',
      message: 'said',
    })
    expect(toStoredError(new Error('outer', { cause: throwing('message') }))).toMatchObject({
      message: 'outer',
      cause: { message: 'something that cannot be described' },
    })
    const several = Object.defineProperty(new AggregateError([1], 'several'), 'errors', { get: () => 5 })
    expect(toStoredError(several)).toMatchObject({ message: 'several' })
  })

  it.each([
    ['undefined', undefined, 'undefined'],
    ['null', null, 'null'],
    ['a symbol', Symbol('s'), 'Symbol(s)'],
    ['an object', { a: 1 }, '{ a: 1 }'],
    ['an object without a prototype', Object.create(null), '[Object: null prototype] {}'],
  ])('may be %s', (_, thrown, shown) => {
    expect(toStoredError(thrown)).toEqual({
      code: 'HANDLER_FAILED',
      name: 'NotAnError',
      message: `the handler threw something that is not an Error: ${shown}`,
    })
    expect(messageOf(thrown)).toBe(shown)
  })

  it('holds nothing that Postgres cannot, in causes neither', () => {
    const bad = 'a\u0000b\ud800'
    const cause = Object.assign(new Error(bad), { name: bad, code: bad, stack: bad })
    const good = 'a\ufffdb\ufffd'
    expect(toStoredError(new Error(bad, { cause }))).toMatchObject({
      message: good,
      cause: { name: good, message: good, code: good, stack: good },
    })
  })

  it.each([
    ['postgres://user:s3cret@host:5432/db', 'postgres://***@host:5432/db'],
    ['no way to "redis://:s3/cr?e@t@host", sorry', 'no way to "redis://***@host", sorry'],
    [
      'https://s3cret@host/a and https://host/?access_token=s3cret&b=1',
      'https://***@host/a and https://host/?access_token=***&b=1',
    ],
    ['mail to a@b.c by https://host/path', 'mail to a@b.c by https://host/path'],
  ])('[X29] holds no credentials: %s', (message, safe) => {
    const stored = toStoredError(new Error('outer', { cause: new Error(message) }))
    expect(stored.cause?.message).toBe(safe)
    expect(JSON.stringify(stored)).not.toContain('s3cret')
  })
})

it("[X29] a user's logger is given an error with its causes, and neither rows nor credentials of it", () => {
  const lines: string[] = []
  const logger = withSafeErrors(pino({ level: 'info' }, { write: line => void lines.push(line) }))
  const rows = { detail: 'Failing row contains (s3cret)', where: 's3cret', input: 'postgres://a:s3cret@b' }
  const cause = Object.assign(new Error('no way to postgres://a:s3cret@b'), { code: '23514', ...rows })
  logger.warn({ err: new Error('outer', { cause }) }, 'it failed')
  logger.warn({ err: new Proxy(cause, { get: () => { throw cause } }) }, 'hostile') // biome-ignore format: one line
  const [first, second] = lines.map(line => JSON.parse(line))
  expect(first.err).toEqual({
    type: 'Error',
    message: 'outer',
    stack: expect.any(String),
    cause: { name: 'Error', message: 'no way to postgres://***@b', code: '23514', stack: expect.any(String) },
  })
  expect(second).toMatchObject({ msg: 'hostile', err: { message: 'something that cannot be described' } })
  expect(lines.join()).not.toContain('s3cret')
})

function deep(causes: number): Error {
  let error = new Error('the first')
  for (let n = 0; n < causes; n++) error = new Error(`cause ${n}`, { cause: error })
  return error
}
