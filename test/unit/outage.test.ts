/** An outage is told once, once a minute while it lasts, and once when it is over. */
import { pino } from 'pino'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { createOutage, withOutages } from '../../src/runtime/outage.ts'

interface Line {
  level: number
  msg: string
  seconds?: number
  err?: { message: string }
}

function capture(level = 'info') {
  const lines: Line[] = []
  return { lines, logger: pino({ level }, { write: (line: string) => void lines.push(JSON.parse(line)) }) }
}

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance', 'setTimeout', 'clearTimeout'] }))
afterEach(() => void vi.useRealTimers())

describe('an outage', () => {
  it('is told once, once a minute while it lasts, and once when it is over', () => {
    const { lines, logger } = capture()
    const outage = createOutage(logger, 'it is away', 'it is back')
    for (let second = 0; second < 150; second++) {
      outage.failed(new Error(`try ${second}`))
      vi.advanceTimersByTime(1000)
    }
    outage.works()
    outage.works()
    vi.advanceTimersByTime(10_000)
    outage.works()
    vi.advanceTimersByTime(10_000)
    expect(lines.map(({ level, msg, seconds }) => [level, msg, seconds])).toEqual([
      [40, 'it is away', undefined],
      [40, 'still: it is away', 60],
      [40, 'still: it is away', 120],
      [40, 'it is back', 149],
    ])
    outage.failed(new Error('again'))
    expect(lines.at(-1)?.msg).toBe('it is away')
  })

  it('is not over while one part works and another still fails', () => {
    const { lines, logger } = capture()
    const outage = createOutage(logger, 'it is away', 'it is back')
    for (let half = 0; half < 40; half++) {
      outage.works()
      if (half % 4 === 0) outage.failed(new Error('too many connections'))
      vi.advanceTimersByTime(500)
    }
    expect(lines.map(({ msg }) => msg)).toEqual(['it is away'])
    vi.advanceTimersByTime(5000)
    outage.works()
    vi.advanceTimersByTime(5000)
    expect(lines.map(({ msg }) => msg)).toEqual(['it is away', 'it is back'])
  })

  it('tells each reason that has a name of its own', () => {
    const { lines, logger } = capture()
    const outage = createOutage(logger, 'it is away', 'it is back')
    for (let n = 0; n < 3; n++) {
      outage.failed(new Error('refused'))
      outage.failed(new Error('no rights'), 'no rights')
    }
    expect(lines.map(({ err }) => err?.message)).toEqual(['refused', 'no rights'])
  })
})

describe('the logger of the parts', () => {
  const isOf = (error: unknown) => (error as Error).message === 'away'

  it('leaves what is said about an outage to the outage, also in children, and passes on all else', () => {
    const { lines, logger } = capture()
    const outage = createOutage(logger, 'it is away', 'it is back')
    const told = withOutages(logger, [{ outage, isOf }]).child({ part: 'a' })
    for (let n = 0; n < 3; n++) told.warn({ err: new Error('away') }, 'could not do this')
    told.info({ err: new Error('away') }, 'nor that')
    told.info({ err: new Error('other') }, 'something else')
    told.warn('a word')
    // An error that a function of the user's threw.
    told.error({ err: new Error('away') }, 'a handler')
    expect(lines.map(({ msg }) => msg)).toEqual(['it is away', 'something else', 'a word', 'a handler'])
  })

  it('tells everything at level debug', () => {
    const { lines, logger } = capture('debug')
    const outage = createOutage(logger, 'it is away', 'it is back')
    withOutages(logger, [{ outage, isOf }]).warn({ err: new Error('away') }, 'could not do this')
    expect(lines.map(({ level, msg }) => [level, msg])).toEqual([
      [40, 'it is away'],
      [20, 'could not do this'],
    ])
  })
})
