import { describe, expect, it } from 'vitest'
import { type ClaimNote, createClaimCursor } from '../../src/worker/claim-cursor.ts'

const filled = { isFilled: true, isLimited: false, worst: 700, ms: 1 }
const short = { isFilled: false, isLimited: false, worst: 700, ms: 1 }

function simulate() {
  let now = 0
  const cursor = createClaimCursor(() => now)
  return {
    cursor,
    pass(ms: number) {
      now += ms
    },
    /** A claim that takes so long. */
    claim(claim: Omit<ClaimNote, 'from'>) {
      const from = cursor.begin()
      now += claim.ms
      return { from, mayBeMore: cursor.note({ ...claim, from }) }
    },
  }
}

/** Claims from the start take 30 ms, those from the cursor 1 ms. */
function simulateSlow() {
  const simulated = simulate()
  const claim = (given: Partial<ClaimNote> = {}) => {
    const from = simulated.cursor.begin()
    const ms = from === null ? 30 : 1
    simulated.pass(ms)
    return { from, mayBeMore: simulated.cursor.note({ ...short, ms, ...given, from }) }
  }
  // One from the start, one to compare, and from then on it knows.
  expect([claim().from, claim().from]).toEqual([null, 700])
  simulated.pass(20)
  return { ...simulated, claim }
}

describe('where a direct claim begins', () => {
  it('is the start at first, and the worst score of the last full claim after that', () => {
    const { cursor } = simulate()
    expect(cursor.begin()).toBeNull()
    cursor.note({ from: null, ...filled })
    expect(cursor.begin()).toBe(700)
    cursor.note({ from: 700, ...filled, worst: 900 })
    expect(cursor.begin()).toBe(900)
  })

  it('is the start again after 20 ms, whatever came meanwhile', () => {
    const { cursor, pass } = simulate()
    cursor.note({ from: null, ...filled })
    pass(19)
    cursor.note({ from: 700, ...filled })
    expect(cursor.begin()).toBe(700)
    pass(1)
    expect(cursor.begin()).toBeNull()
  })

  it.each([
    { startMs: 50, cursorMs: 30, pauseMs: 20 },
    { startMs: 1.9, cursorMs: 0.1, pauseMs: 20 },
    { startMs: 8, cursorMs: 1, pauseMs: 96 },
    { startMs: 100, cursorMs: 1, pauseMs: 800 },
  ])(
    'is the start for a thirteenth of the time where claims from there are slow beside others, and each 800 ms: %o',
    ({ startMs, cursorMs, pauseMs }) => {
      const { cursor, pass } = simulate()
      cursor.note({ from: 600, ...filled, ms: cursorMs })
      cursor.note({ from: null, ...filled, ms: startMs })
      pass(pauseMs - 1)
      expect(cursor.begin()).toBe(700)
      pass(1)
      expect(cursor.begin()).toBeNull()
    },
  )

  it('is the start once a claim was not filled, and only such a claim tells that there is no more', () => {
    const { claim } = simulate()
    claim(filled)
    expect(claim(short)).toEqual({ from: 700, mayBeMore: true })
    expect(claim(short)).toEqual({ from: null, mayBeMore: false })
    expect(claim(short)).toEqual({ from: null, mayBeMore: false })
  })

  it('is the start after one slow claim, if those from the cursor are as slow', () => {
    const { claim } = simulate()
    const slow = { ...short, ms: 10 }
    expect([claim(slow), claim(slow), claim(slow), claim(slow)]).toEqual([
      { from: null, mayBeMore: false },
      { from: 700, mayBeMore: true },
      { from: null, mayBeMore: false },
      { from: null, mayBeMore: false },
    ])
  })
})

describe('where claims from the start are slow', () => {
  it('[X12] stays the cursor after claims that were not filled, for twelve times as long as one takes', () => {
    const { claim, cursor, pass } = simulateSlow()
    expect(claim()).toEqual({ from: null, mayBeMore: false })
    expect(claim({ worst: 800 })).toEqual({ from: 700, mayBeMore: false })
    expect(claim({ worst: undefined })).toEqual({ from: 800, mayBeMore: false })
    expect(cursor.withinMs()).toBe(358)
    pass(357)
    expect(claim()).toEqual({ from: 800, mayBeMore: true })
    expect(claim().from).toBeNull()
  })

  it('lets one claim at a time begin at the start', () => {
    const { claim, cursor, pass } = simulateSlow()
    claim()
    pass(400)
    expect([cursor.begin(), cursor.begin()]).toEqual([null, 700])
  })

  it('[X10] is the start for a job that has become ready before the cursor, and for one of which nothing is known', () => {
    const { claim, cursor } = simulateSlow()
    claim()
    cursor.onReady(700)
    expect(claim().from).toBe(700)
    cursor.onReady(699)
    expect(claim().from).toBeNull()
    expect(claim().from).toBe(700)
    cursor.onReady(null)
    expect(claim().from).toBeNull()
  })

  it('[X10] is the start once more for a job that has become ready while a claim from the start was under way', () => {
    const { claim, cursor, pass } = simulateSlow()
    pass(400)
    const from = cursor.begin()
    pass(20)
    cursor.onReady(3)
    pass(10)
    cursor.note({ ...short, from, ms: 30 })
    expect(claim().from).toBeNull()
    expect(claim().from).toBe(700)
  })

  it('[L7] is the start after a claim that has left jobs behind for a limit', () => {
    const { claim } = simulateSlow()
    claim()
    expect(claim({ isLimited: true }).from).toBe(700)
    expect(claim().from).toBeNull()
  })

  it('is the start again when they are slow no more', () => {
    const { claim, pass } = simulateSlow()
    claim()
    for (let i = 0; i < 2; i++) {
      pass(400)
      expect(claim({ ms: 1 }).from).toBeNull()
    }
    expect(claim().from).toBeNull()
  })
})
