import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { Outcome } from '../../src/postgres/settle-and-claim.ts'
import { createBusyOutcomes } from '../../src/worker/busy-outcomes.ts'

const outcome = (id: string): Outcome => ({ id: id as Outcome['id'], leaseToken: '1', kind: 'released' })

/** Rows that stay locked for so many rounds; what was settled in which round, and when. */
function lockedFor(rounds: number, most = 100) {
  const from = Date.now()
  const at: number[] = []
  const settled: string[][] = []
  let ended = 0
  const busy = createBusyOutcomes({
    async settle(outcomes) {
      at.push(Date.now() - from)
      settled.push(outcomes.map(({ id }) => id))
      if (at.length <= rounds) for (const each of outcomes) busy.add(each)
    },
    most: () => most,
    onRound: () => ended++,
  })
  return { busy, at, settled, rounds: () => ended }
}

describe('outcomes of locked rows', () => {
  beforeEach(() => {
    vi.useFakeTimers()
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  it('are tried again with pauses that double, up to a second', async () => {
    const { busy, at, rounds } = lockedFor(10)
    busy.add(outcome('a'))
    expect(busy.isEmpty).toBe(false)
    await vi.advanceTimersByTimeAsync(10_000)
    const pauses = at.map((time, n) => time - (at[n - 1] ?? 0))
    expect(pauses).toEqual([5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000])
    expect(busy.isEmpty).toBe(true)
    expect(rounds()).toBe(11)
  })

  it('travel together, as many as may', async () => {
    const { busy, settled } = lockedFor(0, 2)
    for (const id of ['a', 'b', 'c']) busy.add(outcome(id))
    await vi.advanceTimersByTimeAsync(100)
    expect(settled).toEqual([['a', 'b'], ['c']])
  })

  it('are given up when the worker ends', async () => {
    const { busy, settled } = lockedFor(0)
    busy.add(outcome('a'))
    busy.close()
    await vi.advanceTimersByTimeAsync(1000)
    expect(settled).toEqual([])
  })
})
