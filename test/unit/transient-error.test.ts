import { describe, expect, it } from 'vitest'
import { LongshoreError } from '../../src/index.ts'
import { isTransientError } from '../../src/postgres/transient-error.ts'
import { toUnavailable } from '../../src/postgres/unavailable.ts'

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
    ['42883', 'Funktion mit OID 16480 existiert nicht'],
    ['42883', 'OID为16480的函数不存在'],
  ])('is that of a function which a migration has just replaced: %s %s', (code, message) => {
    expect(isTransientError(Object.assign(new Error(message), { code }))).toBe(true)
  })

  it.each([undefined, 'jobs_attempts_check'])(
    '[X13] is a row that a new partition takes, which names no constraint (%s), in any language',
    constraint => {
      const error = Object.assign(
        new Error('neue Zeile für Relation »finished_jobs_default« verletzt Partitions-Constraint'),
        { code: '23514', constraint },
      )
      expect(isTransientError(error)).toBe(constraint === undefined)
    },
  )

  it('is nothing that is not an Error', () => {
    expect(isTransientError('connection terminated')).toBe(false)
  })
})

describe('Postgres that is away', () => {
  const driverError = (message: string, code?: string) =>
    Object.assign(new Error(message), code === undefined ? {} : { code })

  it.each([
    ['terminating connection due to administrator command', '57P01'],
    ['the database system is starting up', '57P03'],
    ['connect ECONNREFUSED 127.0.0.1:5432', 'ECONNREFUSED'],
    ['read ECONNRESET', 'ECONNRESET'],
    ['sorry, too many clients already', '53300'],
    ['getaddrinfo ENOTFOUND db', 'ENOTFOUND'],
    ['password authentication failed for user "ada"', '28P01'],
    ['Connection terminated unexpectedly', undefined],
  ])('[X29] is told as STORE_UNAVAILABLE: %s', (message, code) => {
    const cause = driverError(message, code)
    const error = toUnavailable(cause)
    expect(error).toBeInstanceOf(LongshoreError)
    expect(error).toMatchObject({ code: 'STORE_UNAVAILABLE', cause })
    expect((error as Error).message).toContain(
      `${message}${code === undefined || message.includes(code) ? '' : ` (${code})`}. Start it`,
    )
    expect(isTransientError(error)).toBe(isTransientError(cause))
  })

  it.each(['40001', '40P01', '55P03', '57014', '23505', '42501', undefined])('is not told by %s', code => {
    const error = driverError('x', code)
    expect(toUnavailable(error)).toBe(error)
  })
})
