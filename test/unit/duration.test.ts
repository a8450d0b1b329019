import { describe, expect, it } from 'vitest'
import { toMs } from '../../src/job/duration.ts'

describe('durations', () => {
  it.each([
    [0, 0],
    [1.9, 1],
    ['500ms', 500],
    ['30s', 30_000],
    ['1.5m', 90_000],
    ['2h', 7_200_000],
    ['1d', 86_400_000],
  ] as const)('%j is %i ms', (duration, ms) => {
    expect(toMs(duration, 'delay')).toBe(ms)
  })

  it.each([-1, Number.NaN, Number.POSITIVE_INFINITY, '', '5', 's', '-5s', '5 s', '1e3s', '4000d', null, {}])(
    '%j is refused, by name',
    duration => {
      expect(() => toMs(duration as never, 'timeout')).toThrow(/^timeout must be/)
    },
  )
})
