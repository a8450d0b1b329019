import { describe, expect, it } from 'vitest'
import { isTransientError } from '../../src/postgres/transient-error.ts'

describe('a failure that passes by itself', () => {
  it.each(['40001', '40P01', '57P01', '57P05', '25P04', '08006', 'ECONNRESET', 'ECONNREFUSED', '25006'])(
    'is one with code %s',
    code => {
      expect(isTransientError(Object.assign(new Error('x'), { code }))).toBe(true)
    },
  )

  it.each(['Connection terminated unexpectedly', 'Query read timeout', 'timeout expired'])(
    'is %s',
    message => {
      expect(isTransientError(new Error(message))).toBe(true)
    },
  )

  it.each(['23505', '42883', '22P02', 'ENOTFOUND'])('is not one with code %s', code => {
    expect(isTransientError(Object.assign(new Error('connection terminated'), { code }))).toBe(false)
  })

  it.each([
    ['XX000', 'cache lookup failed for function 16480'],
    ['42883', 'function with OID 16480 does not exist'],
  ])('is that of a function which a migration has just replaced: %s %s', (code, message) => {
    expect(isTransientError(Object.assign(new Error(message), { code }))).toBe(true)
  })

  it('is nothing that is not an Error', () => {
    expect(isTransientError('connection terminated')).toBe(false)
  })
})
