/** What is said about the goals: reached or missed, beside whom. */
import { describe, expect, it } from 'vitest'
import { knownPeers } from '../../../bench/peers/known-peers.ts'
import { scenarios } from '../../../bench/scenarios/sets.ts'
import { checkGoals } from '../../../bench/summary/check-goals.ts'
import { type Goal, goals } from '../../../bench/summary/goals.ts'
import { result } from './results.ts'

const faster: Goal = {
  id: 'P3',
  scenario: 'drain1',
  figure: 'rate',
  side: 'longshore',
  to: 'bullmq',
  asked: { atLeast: 2 },
}

describe('goals of the bench', () => {
  it('are about scenarios, figures and sides that there are', () => {
    for (const { id, scenario, figure, side, to } of goals) {
      const found = scenarios.find(one => one.id === scenario)
      expect(found, `${id} ${scenario}`).toBeDefined()
      if (typeof figure === 'string') expect(found?.figures.map(({ name }) => name)).toContain(figure)
      const sides = found?.variants?.map(({ name }) => name) ?? Object.keys(knownPeers)
      const others = to === undefined ? [] : typeof to === 'string' ? [to] : to.bestOf
      expect(sides).toEqual(expect.arrayContaining([side, ...others]))
    }
  })

  it('are reached by the median of the ratios', () => {
    const rounds = [3, 1, 2.5].flatMap((ratio, i) => [
      result('longshore', i, ratio * 10),
      result('bullmq', i, 10),
    ])
    const [verdict] = checkGoals([faster], rounds)
    expect(verdict).toMatchObject({ isReached: true, ratio: { median: 2.5, min: 1, max: 3 } })
  })

  it('are missed below the bound, or above it where less is better', () => {
    const results = [result('longshore', 1, 15), result('bullmq', 1, 10)]
    const lower: Goal = { ...faster, asked: { atMost: 1.4 } }
    expect(checkGoals([faster, lower], results).map(({ isReached }) => isReached)).toEqual([false, false])
  })

  it('compare with the best of several in each round, and say who was not measured', () => {
    const best: Goal = { ...faster, to: { bestOf: ['bullmq', 'pg-boss', 'bullmq-aof'], says: 'the best' } }
    const results = [
      result('longshore', 1, 40),
      result('bullmq', 1, 10),
      result('pg-boss', 1, 20),
      result('longshore', 2, 40),
      result('bullmq', 2, 40),
      result('pg-boss', 2, 20),
    ]
    const [verdict] = checkGoals([best], results)
    expect(verdict).toMatchObject({ ratio: { min: 1, max: 2 }, missing: ['bullmq-aof'] })
  })

  it('take the least as the best where less is better', () => {
    const least: Goal = {
      ...faster,
      to: { bestOf: ['bullmq', 'pg-boss'], says: 'the best' },
      asked: { atMost: 1 },
    }
    const results = [result('longshore', 1, 15), result('bullmq', 1, 10), result('pg-boss', 1, 30)]
    expect(checkGoals([least], results)[0]?.ratio.median).toBe(1.5)
  })

  it('can be about a figure by itself, and about processor time', () => {
    const alone: Goal = {
      id: 'P7',
      scenario: 'drain1',
      figure: 'rate',
      side: 'longshore',
      asked: { atMost: 0 },
    }
    const cpu: Goal = { ...faster, figure: { cores: 'postgres' }, asked: { atMost: 0.6 } }
    const results = [
      result('longshore', 1, 0, { cores: { postgres: 0.5 } }),
      result('bullmq', 1, 10, { cores: { postgres: 1 } }),
    ]
    expect(checkGoals([alone, cpu], results).map(({ isReached }) => isReached)).toEqual([true, true])
  })

  it('can ask every measurement to reach them, noisy ones and first attempts too', () => {
    const each: Goal = {
      id: 'X10',
      scenario: 'drain1',
      figure: 'rate',
      side: 'longshore',
      asked: { atMost: 10 },
    }
    const results = [
      result('longshore', 1, 50, { isNoisy: true }),
      result('longshore', 1, 5, { attempt: 2 }),
      result('longshore', 2, 5),
    ]
    const verdicts = checkGoals([each, { ...each, isForEach: true }], results)
    expect(verdicts.map(({ isReached }) => isReached)).toEqual([true, false])
  })

  it('are left out when nothing was measured for them', () => {
    expect(checkGoals([faster], [result('longshore', 1, 15)])).toEqual([])
  })
})
