import { describe, expect, it } from 'vitest'
import { toBackoff } from '../../src/job/backoff.ts'

describe('backoff', () => {
  const waits = (backoff: ReturnType<typeof toBackoff>) =>
    [1, 2, 3, 4, 20].map(attempt => backoff(attempt, new Error()))

  it('[X5] fixed waits the same each time', () => {
    expect(waits(toBackoff('fixed'))).toEqual([1000, 1000, 1000, 1000, 1000])
    expect(waits(toBackoff({ type: 'fixed', delay: '2s' }))).toEqual([2000, 2000, 2000, 2000, 2000])
  })

  it('[X5] exponential doubles up to its maximum', () => {
    expect(waits(toBackoff({ type: 'exponential', jitter: 0 }))).toEqual([1000, 2000, 4000, 8000, 3_600_000])
    expect(waits(toBackoff({ type: 'exponential', delay: 10, max: 30, jitter: 0 }))).toEqual([
      10, 20, 30, 30, 30,
    ])
  })

  it('[X5] jitter takes away at most its share', () => {
    expect(toBackoff('exponential', () => 0)(3, undefined)).toBe(4000)
    expect(toBackoff('exponential', () => 0.999999)(3, undefined)).toBe(2000)
    expect(toBackoff({ type: 'fixed', delay: 100, jitter: 1 }, () => 0.75)(1, undefined)).toBe(25)
  })

  it('[X5] a function is asked with the attempt and the error, and may answer with a duration', () => {
    const error = new Error('x')
    const backoff = toBackoff((attempt, given) => (given === error && attempt === 2 ? '5m' : 7))
    expect([backoff(1, error), backoff(2, error)]).toEqual([7, 300_000])
    expect(() => toBackoff(() => Number.NaN)(1, error)).toThrow('custom backoff')
  })

  it.each([{ type: 'linear' }, { type: 'fixed', jitter: 2 }, { type: 'fixed', delay: -1 }])(
    'refuses %j',
    options => {
      expect(() => toBackoff(options as never)).toThrow()
    },
  )
})
