import { describe, expect, it } from 'vitest'
import {
  batchSize,
  claimSize,
  firstBatch,
  followers,
  holdable,
  isCritical,
  isSaturated,
  pressureFactor,
  type Room,
} from '../../src/worker/claim-size.ts'

const limits = { memoryThreshold: 0.8, latencyThresholdMs: 1000 }
const calm: Room = {
  free: 1000,
  asked: 0,
  more: 1000,
  batch: 50,
  isSaturated: false,
  factor: 1,
  isCritical: false,
  ended: 0,
  isOverdue: false,
}

describe('the factors of pressure', () => {
  it.each([
    ['[W9] at the threshold', 0.8, 0, 1],
    ['[W9] above it', 0.801, 0, 0.5],
    ['[W10] p99 at its threshold', 0.1, 1000, 1],
    ['[W10] p99 above it', 0.1, 1001, 0.7],
    ['[W10] both', 0.9, 5000, 0.35],
    ['neither', 0, 0, 1],
  ])('%s', (_, memory, p99Ms, factor) => {
    expect(pressureFactor({ memory, p99Ms }, limits)).toBeCloseTo(factor, 10)
  })

  it('[W10] leaves latency alone where no threshold is set', () => {
    expect(pressureFactor({ memory: 0, p99Ms: 1e9 }, { memoryThreshold: 0.8 })).toBe(1)
  })

  it.each([
    [0.9, 0.8, false],
    [0.901, 0.8, true],
    [0.8, 0.5, true],
    [0.99, 1, false],
  ])('memory %d is critical over a threshold of %d: %s', (memory, memoryThreshold, critical) => {
    expect(isCritical({ memory, p99Ms: 0 }, { ...limits, memoryThreshold })).toBe(critical)
  })
})

describe('what memory may bear', () => {
  it.each([
    [50, 0.1, 400],
    [50, 0.4, 100],
    [100, 0.79, 101],
    [100, 0.8, 100],
    [100, 1, 80],
    [0, 0.5, 0],
  ])('[W13] having held %d with memory at %d, it may hold %d', (most, memory, more) => {
    expect(holdable(most, { memory, p99Ms: 0 }, limits)).toBe(more)
  })
})

describe('how many a claim may bring', () => {
  it.each([
    [50, 10],
    [10, 10],
    [3, 3],
  ])('[W14] of a batch of %d it is %d at first', (batch, first) => {
    expect(firstBatch(batch)).toBe(first)
  })

  it.each([
    [50, 0, 50],
    [50, 40, 50],
    [50, 200, 200],
    [50, 20_000, 500],
    [1000, 0, 1000],
  ])('[W4] of a batch of %d, where %d may follow what has ended, it is %d', (batch, following, size) => {
    expect(batchSize(batch, following)).toBe(size)
  })

  it('[W4] [L5] twice as many follow where jobs were left behind, as many as have ended where slots were lacking, else none', () => {
    expect(followers(70, { hasBacklog: true, isLimited: false })).toBe(140)
    expect(followers(70, { hasBacklog: false, isLimited: true })).toBe(70)
    expect(followers(70, { hasBacklog: false, isLimited: false })).toBe(0)
  })
})

describe('saturation', () => {
  // max, the most free permits at which it stops, the fewest at which it goes on
  it.each([
    [1, 0, 1],
    [2, 0, 1],
    [5, 0, 1],
    [10, 0, 2],
    [11, 1, 3],
    [1000, 99, 200],
  ])('[W8] with %d permits stops at %d free and resumes at %d', (max, stopsAt, resumesAt) => {
    expect(isSaturated(false, stopsAt, max)).toBe(true)
    expect(isSaturated(false, stopsAt + 1, max)).toBe(false)
    expect(isSaturated(true, resumesAt - 1, max)).toBe(true)
    expect(isSaturated(true, resumesAt, max)).toBe(false)
  })

  it('[W8] leaves at least one permit usable, however few there are', () => {
    for (let max = 1; max <= 2000; max++) expect(isSaturated(false, max, max), `${max}`).toBe(false)
  })
})

describe('the size of a claim', () => {
  it.each<[string, Partial<Room>, number]>([
    ['[W6] is the batch while enough permits are free', {}, 50],
    ['[W6] is what is free when that is less', { free: 7 }, 7],
    ['[W6] is nothing at capacity', { free: 0 }, 0],
    ['[W6] is nothing at capacity, whatever else holds', { free: 0, isOverdue: true, ended: 9 }, 0],
    ['[W6] is nothing with more asked for than there is', { free: -3 }, 0],
    ['[W8] is nothing while saturated', { free: 60, isSaturated: true }, 0],
    [
      '[W8] is what is free when it has been saturated for long',
      { free: 3, isSaturated: true, isOverdue: true },
      3,
    ],
    ['[W9] is half under memory pressure', { factor: 0.5 }, 25],
    ['[W10] is 70 % under latency', { factor: 0.7 }, 35],
    ['[W10] is 35 % under both', { factor: 0.35 }, 17],
    ['[W6] is never below one by pressure alone', { free: 1, factor: 0.35 }, 1],
    ['[W6] is never below one by a small batch', { batch: 1, factor: 0.35 }, 1],
    ['[W13] is no more than memory may bear', { more: 20 }, 20],
    ['[W13] is one when memory may bear none', { more: -7 }, 1],
    ['[W13] waits for what has been asked for before', { more: 0, asked: 50 }, 0],
    ['[W13] may go beside what has been asked for', { more: 5, asked: 50 }, 5],
    ['[W9] is half of what has ended when memory is short', { factor: 0.5, isCritical: true, ended: 20 }, 10],
    ['[W9] is no more than the factor says even then', { factor: 0.5, isCritical: true, ended: 500 }, 25],
    ['[W9] is one for one that has ended', { factor: 0.5, isCritical: true, ended: 1 }, 1],
    ['[W9] waits while memory is short and nothing ends', { factor: 0.5, isCritical: true }, 0],
    ['[W6] is one when that has lasted', { factor: 0.5, isCritical: true, isOverdue: true }, 1],
  ])('%s', (_, room, size) => {
    expect(claimSize({ ...calm, ...room })).toBe(size)
  })
})
