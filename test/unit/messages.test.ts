/** What is said on channels in Redis is believed only as far as it fits. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { isJobId } from '../../src/job/job-id.ts'
import { parseBeat, parseBell, parseLow, sayAnew } from '../../src/redis/messages.ts'

const ID = '01a1ec58-d093-75f0-be17-7c736085a86a'

describe('messages in Redis', () => {
  it('[X14] are read as they are said', () => {
    expect(parseLow('longshore:d:{q}:2 1,22')).toEqual({ root: 'longshore:d:{q}:2', lanes: [1, 22] })
    expect(parseLow(sayAnew('longshore:d:{q}:2', '7-abc123'))).toEqual({
      root: 'longshore:d:{q}:2',
      anew: '7-abc123',
    })
    expect(parseBeat('7-abc123 a queue')).toEqual({ generation: '7-abc123', queue: 'a queue' })
    expect(parseBell(`7-abc123 ${ID} 3 12`)).toEqual({
      generation: '7-abc123',
      id: ID,
      lane: 3,
      leaseToken: '12',
    })
  })

  it('[X14] never yield what Postgres could not take', () => {
    const piece = fc.constantFrom(
      'q',
      ' ',
      ',',
      '1',
      '-1',
      'abc',
      '9'.repeat(11),
      '2147483648',
      ID,
      '-'.repeat(36),
      '7-abc123',
      'anew',
      '\u0000',
      'NaN',
    )
    const text = fc.oneof(
      fc.string(),
      fc.array(piece, { maxLength: 8 }).map(pieces => pieces.join('')),
      fc.array(piece, { maxLength: 6 }).map(pieces => pieces.join(' ')),
    )
    const isNumber = (lane: number) => Number.isInteger(lane) && lane >= 0 && lane <= 2_147_483_647
    fc.assert(
      fc.property(text, said => {
        const low = parseLow(said)
        if (low && 'lanes' in low) expect(low.lanes.every(isNumber)).toBe(true)
        const bell = parseBell(said)
        if (bell)
          expect([isJobId(bell.id), isNumber(bell.lane), /^\d{1,16}$/.test(bell.leaseToken)]).toEqual([
            true,
            true,
            true,
          ])
        const beat = parseBeat(said)
        if (beat) expect(beat.generation).toMatch(/^\d+-[0-9a-f]{6}$/)
      }),
      { numRuns: 2000 },
    )
  })
})
