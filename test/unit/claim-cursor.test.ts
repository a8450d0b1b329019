import { describe, expect, it } from 'vitest'
import { createClaimCursor } from '../../src/worker/claim-cursor.ts'

const filled = { isFilled: true, worst: 700, ms: 1 }

describe('where a direct claim begins', () => {
  it('is the start at first, and the worst score of the last full claim after that', () => {
    const cursor = createClaimCursor(() => 0)
    expect(cursor.begin()).toBeNull()
    cursor.note({ from: null, ...filled })
    expect(cursor.begin()).toBe(700)
    cursor.note({ from: 700, ...filled, worst: 900 })
    expect(cursor.begin()).toBe(900)
  })

  it('is the start again after 20 ms, whatever came meanwhile', () => {
    let now = 0
    const cursor = createClaimCursor(() => now)
    cursor.note({ from: null, ...filled })
    now = 19
    cursor.note({ from: 700, ...filled })
    expect(cursor.begin()).toBe(700)
    now = 20
    expect(cursor.begin()).toBeNull()
  })

  it.each([
    { startMs: 50, cursorMs: 30, pauseMs: 20 },
    { startMs: 8, cursorMs: 1, pauseMs: 80 },
    { startMs: 50, cursorMs: 1, pauseMs: 250 },
  ])(
    'is the start for a tenth of the time where claims from there are slow beside others, and each 250 ms: %o',
    ({ startMs, cursorMs, pauseMs }) => {
      let now = 0
      const cursor = createClaimCursor(() => now)
      cursor.note({ from: 600, ...filled, ms: cursorMs })
      cursor.note({ from: null, ...filled, ms: startMs })
      now = pauseMs - 1
      expect(cursor.begin()).toBe(700)
      now = pauseMs
      expect(cursor.begin()).toBeNull()
    },
  )

  it('is the start once a claim was not filled', () => {
    const cursor = createClaimCursor(() => 0)
    cursor.note({ from: null, ...filled })
    cursor.note({ from: 700, isFilled: false, worst: 800, ms: 1 })
    expect(cursor.begin()).toBeNull()
  })
})
