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
  it('[X12] stays the cursor, also after claims that were not filled: no claim begins at the start', () => {
    const { claim, pass } = simulateSlow()
    expect(claim()).toEqual({ from: 700, mayBeMore: false })
    expect(claim({ worst: 800 })).toEqual({ from: 700, mayBeMore: false })
    expect(claim({ worst: undefined })).toEqual({ from: 800, mayBeMore: false })
    expect(claim({ ...filled, worst: 900, ms: 1 })).toEqual({ from: 800, mayBeMore: false })
    pass(10_000)
    expect(claim()).toEqual({ from: 900, mayBeMore: false })
  })

  it('[X12] a look begins twelve times as long after the last as one takes, 800 ms at most', () => {
    const { cursor, pass } = simulateSlow()
    // After the claim from the start.
    expect(cursor.lookWithinMs()).toBe(12 * 30 - 1 - 20)
    pass(339)
    for (const [ms, pauseMs] of [
      [30, 360],
      [10, 120],
      [100, 800],
    ] as const) {
      expect(cursor.lookWithinMs()).toBe(0)
      expect(cursor.beginLook()).toBe(700)
      // One at a time.
      expect(cursor.lookWithinMs()).toBe(Number.POSITIVE_INFINITY)
      pass(ms)
      expect(cursor.noteLook({ best: null, ms })).toBe(false)
      expect(cursor.lookWithinMs()).toBe(pauseMs)
      pass(pauseMs)
    }
  })

  it('[X10] is the score that a look has found, once', () => {
    const { claim, cursor } = simulateSlow()
    cursor.beginLook()
    expect(cursor.noteLook({ best: 5, ms: 30 })).toBe(true)
    expect(claim({ worst: 5 })).toEqual({ from: 5, mayBeMore: false })
    expect(claim().from).toBe(700)
  })

  it('[X10] goes on behind a job that a look has found, while claims from there are filled', () => {
    const { claim, cursor } = simulateSlow()
    cursor.beginLook()
    cursor.noteLook({ best: 5, ms: 30 })
    claim({ ...filled, worst: 60 })
    expect(claim().from).toBe(60)
    expect(claim().from).toBe(700)
  })

  it('[X10] is the score of a job that has rung, also if a claim under way gets past it', () => {
    const { claim, cursor } = simulateSlow()
    cursor.onReady(3)
    cursor.onReady(650)
    expect(claim().from).toBe(3)
    const from = cursor.begin()
    cursor.onReady(750)
    cursor.note({ ...short, from, worst: 800, ms: 1 })
    expect(claim().from).toBe(750)
    expect(claim().from).toBe(800)
  })

  it('[X10] a job that rings at a score that is not known is looked for at once, and after a look that was under way', () => {
    const { cursor } = simulateSlow()
    cursor.onReady(null)
    expect(cursor.lookWithinMs()).toBe(0)
    cursor.beginLook()
    cursor.onReady(null)
    cursor.noteLook({ best: null, ms: 30 })
    expect(cursor.lookWithinMs()).toBe(0)
  })

  it('[L7] is the start after a claim that has left jobs behind for a limit', () => {
    const { claim } = simulateSlow()
    expect(claim({ isLimited: true }).from).toBe(700)
    expect(claim().from).toBeNull()
    expect(claim().from).toBe(700)
  })

  it('is the start again when a look is quick', () => {
    const { claim, cursor } = simulateSlow()
    cursor.beginLook()
    expect(cursor.noteLook({ best: null, ms: 1 })).toBe(true)
    expect(cursor.lookWithinMs()).toBe(Number.POSITIVE_INFINITY)
    expect(claim({ ms: 1 })).toEqual({ from: null, mayBeMore: false })
  })
})

it('[X10] begins at the start once more for a job that has become ready while a claim from the start was under way', () => {
  const { cursor, pass } = simulate()
  const from = cursor.begin()
  pass(2)
  cursor.onReady(3)
  pass(8)
  cursor.note({ ...filled, from, ms: 10 })
  expect(cursor.begin()).toBeNull()
})
