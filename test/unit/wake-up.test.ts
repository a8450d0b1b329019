import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { createWakeUp } from '../../src/runtime/wake-up.ts'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance', 'Date'] })
})
afterEach(() => {
  vi.useRealTimers()
})

/** A worker whose looks find `jobsPerLook()` jobs at once. */
function simulate(
  options: {
    setListening?: (isListening: boolean) => Promise<void>
    pollIntervalMs?: number
    mayCommitLate?: () => Promise<boolean>
  } = {},
) {
  const writes: boolean[] = []
  const errors: unknown[] = []
  let looks = 0
  let jobsPerLook = 0
  const wakeUp = createWakeUp({
    pollIntervalMs: options.pollIntervalMs ?? 100,
    setListening: async isListening => {
      writes.push(isListening)
      await options.setListening?.(isListening)
    },
    look: () => {
      looks++
      if (jobsPerLook > 0) wakeUp.onClaimed(jobsPerLook)
      wakeUp.onIdle()
    },
    ...(options.mayCommitLate ? { mayCommitLate: options.mayCommitLate } : {}),
    onError: error => errors.push(error),
  })
  wakeUp.onIdle()
  return {
    wakeUp,
    writes,
    errors,
    get looks() {
      return looks
    },
    find(jobs: number) {
      jobsPerLook = jobs
    },
    pass: (ms: number) => vi.advanceTimersByTimeAsync(ms),
  }
}

describe('waking up', () => {
  it('[W5] looks every 2 ms at first, then listens and looks only at the poll interval', async () => {
    const worker = simulate()
    await worker.pass(100)
    expect(worker.looks).toBeGreaterThanOrEqual(45)
    await worker.pass(200)
    expect(worker.writes).toEqual([true])
    const before = worker.looks
    await worker.pass(1000)
    expect(worker.looks - before).toBe(10)
  })

  it('looks once more after it began to listen, for commits that did not see it yet', async () => {
    const worker = simulate()
    while (worker.writes.length === 0) await worker.pass(1)
    const before = worker.looks
    await worker.pass(60)
    expect(worker.looks).toBeGreaterThan(before)
  })

  it.each([10, 40, 300, 5000, 60_000])(
    '[W5] finds within twice the time what is committed late, after %i ms, by a transaction that did not see it listen',
    async lateMs => {
      let isOpen = true
      const worker = simulate({ pollIntervalMs: 3_600_000, mayCommitLate: async () => isOpen })
      while (worker.writes.length === 0) await worker.pass(1)
      await worker.pass(lateMs)
      isOpen = false
      const before = worker.looks
      await worker.pass(2 * lateMs + 25)
      expect(worker.looks).toBe(before + 1)
    },
  )

  it('[W5] looks on, ever more rarely, while such a transaction is open, and not at all without one', async () => {
    for (const isOpen of [true, false]) {
      const worker = simulate({ pollIntervalMs: 30 * 3_600_000, mayCommitLate: async () => isOpen })
      while (worker.writes.length === 0) await worker.pass(1)
      await worker.pass(100)
      const before = worker.looks
      await worker.pass(24 * 3_600_000)
      expect(worker.looks - before).toBeGreaterThan(isOpen ? 5 : -1)
      expect(worker.looks - before).toBeLessThan(isOpen ? 20 : 1)
      worker.wakeUp.stop()
    }
  })

  it('looks on when it cannot be told whether such a transaction is open', async () => {
    const worker = simulate({
      pollIntervalMs: 3_600_000,
      mayCommitLate: async () => {
        throw new Error('no database')
      },
    })
    while (worker.writes.length === 0) await worker.pass(1)
    const before = worker.looks
    await worker.pass(1000)
    expect(worker.looks).toBeGreaterThan(before + 1)
    expect(worker.errors.length).toBeGreaterThan(0)
  })

  it('never listens while jobs flow, and does so when they have ceased', async () => {
    const worker = simulate()
    worker.find(3)
    await worker.pass(5000)
    expect(worker.writes).toEqual([])
    worker.find(0)
    await worker.pass(500)
    expect(worker.writes).toEqual([true])
  })

  it('stays listening at 50 bells a second, and stops at 1,000', async () => {
    const worker = simulate()
    await worker.pass(300)
    for (let n = 0; n < 100; n++) {
      worker.wakeUp.onRing()
      await worker.pass(20)
    }
    expect(worker.writes).toEqual([true])
    for (let n = 0; n < 50; n++) {
      worker.wakeUp.onRing()
      await worker.pass(1)
    }
    expect(worker.writes[1]).toBe(false)
  })

  it('lets bells go to others while it has no free permit', async () => {
    const worker = simulate()
    await worker.pass(300)
    worker.wakeUp.onFull()
    await worker.pass(1)
    expect(worker.writes).toEqual([true, false])
  })

  it('goes on looking when it could not write that it listens', async () => {
    const worker = simulate({
      setListening: async () => {
        throw new Error('no database')
      },
    })
    await worker.pass(1000)
    expect(worker.errors.length).toBeGreaterThan(0)
    const before = worker.looks
    await worker.pass(1000)
    expect(worker.looks).toBeGreaterThan(before + 100)
  })

  it('is silent once stopped', async () => {
    const worker = simulate()
    await worker.pass(300)
    worker.wakeUp.stop()
    const before = worker.looks
    worker.wakeUp.onRing()
    worker.wakeUp.onFull()
    await worker.pass(5000)
    expect(worker.looks).toBe(before)
    expect(worker.writes).toEqual([true])
  })
})
