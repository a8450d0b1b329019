import fc from 'fast-check'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { newJobId, toJobId } from '../../src/job/job-id.ts'

afterEach(() => {
  vi.useRealTimers()
})

describe('job ids', () => {
  it('[C7] are UUIDv7, unique and ascending, 100,000 in a row', () => {
    const ids = Array.from({ length: 100_000 }, newJobId)
    for (let n = 1; n < ids.length; n++) {
      if (!((ids[n] as string) > (ids[n - 1] as string)))
        throw new Error(`${ids[n]} does not follow ${ids[n - 1]}`)
    }
    expect(ids[0]).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
  })

  it('[C7] ascend also when the clock goes back', () => {
    vi.useFakeTimers({ toFake: ['Date'] })
    fc.assert(
      fc.property(fc.array(fc.integer({ min: -5000, max: 5000 }), { maxLength: 50 }), steps => {
        let last = newJobId()
        for (const step of steps) {
          vi.setSystemTime(Date.now() + step)
          const next = newJobId()
          expect(next > last).toBe(true)
          last = next
        }
      }),
    )
  })

  it('are accepted in either case, and nothing else is', () => {
    const id = newJobId()
    expect(toJobId(id.toUpperCase())).toBe(id)
    for (const bad of ['', 'x', `${id}0`, `${id}\n`, `{${id}}`, null, 5]) {
      expect(() => toJobId(bad as string)).toThrow('a job id is a UUID')
    }
  })
})
