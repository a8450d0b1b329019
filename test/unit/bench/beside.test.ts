/** Two checkouts beside each other: the interval of a ratio, and the verdict on it. */
import { describe, expect, it } from 'vitest'
import { compare } from '../../../bench/beside/compare.ts'
import type { BesidePair } from '../../../bench/beside/run-pairs.ts'
import { signInterval } from '../../../bench/measure/statistics.ts'
import { drain1 } from '../../../bench/scenarios/beside-peers/drain-one-worker.ts'

const measured = (rate: number, postgres: number, walBytes: number) => ({
  jobs: 1000,
  figures: { rate },
  cores: { postgres, workers: 0.5, producer: 0.2 },
  seconds: 1,
  writes: { walBytes, transactions: 5 },
})

const pairs = (count: number, rateThere: (pair: number) => number): BesidePair[] =>
  Array.from({ length: count }, (_, i) => ({
    scenario: 'drain1',
    side: 'longshore-direct',
    pair: i + 1,
    measured: { here: measured(1000, 1, 500_000), there: measured(rateThere(i), 0.5, 500_000) },
  }))

const level = () => 1000
const slower = () => 900
const faster = () => 1100

const verdictOn = (name: string, of: readonly BesidePair[]) =>
  compare([drain1], of).find(({ figure }) => figure.name === name)?.verdict

describe('the interval of a median', () => {
  it('leaves out the least and the greatest of ten samples, and no more', () => {
    const { median, from, to, confidence } = signInterval([3, 1, 2, 10, 4, 9, 5, 8, 6, 7])
    expect({ median, from, to }).toEqual({ median: 5.5, from: 2, to: 9 })
    expect(confidence).toBeCloseTo(0.9785, 4)
  })

  it('says how little a few samples are sure of', () => {
    expect(signInterval([1, 2, 3])).toMatchObject({ median: 2, from: 1, to: 3, confidence: 0.75 })
    expect(signInterval([1]).confidence).toBe(0)
    expect(signInterval([1, 2, 3, 4, 5, 6])).toMatchObject({ from: 1, to: 6, confidence: 0.96875 })
  })
})

describe('two builds beside each other', () => {
  it('are worse, better or level by which side of 1 the interval lies on', () => {
    const of = pairs(10, i => (i % 2 === 0 ? 900 : 1100))
    expect(verdictOn('rate', of)).toBe('no difference seen')
    expect(verdictOn('cost', of)).toBe('worse')
    expect(verdictOn('WAL a job', of)).toBe('no difference seen')
    expect(verdictOn('rate', pairs(10, slower))).toBe('better')
    expect(verdictOn('rate', pairs(10, faster))).toBe('worse')
  })

  it('are not judged by too few pairs', () => {
    expect(verdictOn('rate', pairs(5, slower))).toBe('too few pairs')
  })

  it('are compared by the CPU of all parts but the harness', () => {
    const cpu = compare([drain1], pairs(1, level)).find(({ figure }) => figure.name === 'cost')
    expect(cpu?.medians).toEqual({ here: 1500, there: 1000 })
  })
})
