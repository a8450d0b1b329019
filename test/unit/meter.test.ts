import { describe, expect, it } from 'vitest'
import { Buckets, Meter } from '../../src/worker/meter.ts'

describe('the p99 of a worker', () => {
  it('[W10] is that of the runs that ended of late, within a percent or so', () => {
    const meter = new Meter()
    expect(meter.p99Ms(0)).toBe(0)
    for (let ms = 1; ms <= 1000; ms++) meter.ended('t', 'succeeded', 0, ms)
    expect(meter.p99Ms(1000) / 990).toBeCloseTo(1, 2)
  })

  it('[W10] forgets what ended two windows ago, and not before one has passed', () => {
    const meter = new Meter()
    meter.ended('t', 'succeeded', 0, 5000)
    meter.ended('t', 'succeeded', 14_990, 15_000) // the next window
    expect(meter.p99Ms(15_001)).toBeGreaterThan(4900)
    meter.ended('t', 'succeeded', 25_990, 26_000) // and the next
    expect(meter.p99Ms(26_001)).toBeLessThan(20)
    expect(meter.p99Ms(80_000)).toBe(0)
  })

  it('[W10] leaves out what was given back', () => {
    const meter = new Meter()
    meter.ended('t', 'released', 0, 9000)
    expect(meter.p99Ms(9001)).toBe(0)
    expect([meter.completed, meter.tasks.get('t')?.released]).toEqual([0, 1])
  })
})

describe('the counts of a worker', () => {
  it('[W11] are kept by task and by how a run ended', () => {
    const meter = new Meter()
    meter.ended('a', 'succeeded', 0, 10)
    meter.ended('a', 'retried', 0, 10)
    meter.ended('a', 'failed', 0, 2000)
    meter.ended('b', 'succeeded', 0, 10)
    expect(meter.tasks.get('a')).toMatchObject({ succeeded: 1, retried: 1, failed: 1, released: 0 })
    expect(meter.tasks.get('a')?.seconds.sum).toBeCloseTo(2.02, 5)
    expect([meter.completed, meter.failed]).toEqual([4, 1])
  })

  it('[W11] fall into the first bucket whose bound they do not exceed', () => {
    const buckets = new Buckets([1, 5])
    for (const value of [0, 1, 1.1, 5, 6, 100]) buckets.add(value)
    expect(buckets.counts).toEqual([2, 2, 2])
    expect(buckets.sum).toBeCloseTo(113.1, 5)
  })
})
