/** What a run of the bench says in the end, of measurements that others disturbed as of quiet ones. */
import { describe, expect, it } from 'vitest'
import type { Result } from '../../../bench/run/rounds.ts'
import { sidesOf } from '../../../bench/run/sides.ts'
import { drain1 } from '../../../bench/scenarios/beside-peers/drain-one-worker.ts'
import { enqueue32 } from '../../../bench/scenarios/beside-peers/single-enqueues.ts'
import { summarize } from '../../../bench/summary/summary.ts'
import { result } from './results.ts'

const PEERS = ['longshore', 'graphile-worker']
const noisy = { isNoisy: true }

const summaryOf = (...results: Result[]) => summarize([drain1], PEERS, { results, unmeasured: [] })
const rateOf = (...results: Result[]) => {
  const [line] = summaryOf(...results).figures
  if (!line) throw new Error('no figure')
  return line
}

describe('the summary of a run', () => {
  it('tells median, least and most of the rounds', () => {
    const { sides } = rateOf(
      result('longshore', 1, 30),
      result('longshore', 2, 10),
      result('longshore', 3, 20),
    )
    expect(sides['longshore']).toEqual({ median: 20, min: 10, max: 30 })
  })

  it('takes ratios within each round', () => {
    const { ratios } = rateOf(
      result('longshore', 1, 30),
      result('graphile-worker', 1, 10),
      result('longshore', 2, 400),
      result('graphile-worker', 2, 100),
    )
    expect(ratios).toEqual([
      { side: 'longshore', to: 'graphile-worker', ratio: { median: 3.5, min: 3, max: 4 } },
    ])
  })

  it('counts the quiet attempt of a round in place of the noisy one', () => {
    const { sides } = rateOf(result('longshore', 1, 5, noisy), result('longshore', 1, 30, { attempt: 2 }))
    expect(sides['longshore']?.median).toBe(30)
  })

  it('counts the later of two noisy attempts', () => {
    const both = [result('longshore', 1, 5, noisy), result('longshore', 1, 8, { ...noisy, attempt: 2 })]
    expect(rateOf(...both).sides['longshore']?.median).toBe(8)
  })

  it('leaves noisy rounds out where there are quiet ones', () => {
    const { sides } = rateOf(result('longshore', 1, 5, noisy), result('longshore', 2, 30))
    expect(sides['longshore']).toEqual({ median: 30, min: 30, max: 30 })
  })

  it('leaves a ratio out when either side was noisy and another round was quiet', () => {
    const { ratios } = rateOf(
      result('longshore', 1, 30),
      result('graphile-worker', 1, 1, noisy),
      result('longshore', 2, 30),
      result('graphile-worker', 2, 10),
    )
    expect(ratios[0]?.ratio).toEqual({ median: 3, min: 3, max: 3 })
  })

  it('counts noisy rounds when there are no others, and says how many', () => {
    const summary = summaryOf(result('longshore', 1, 5, noisy), result('longshore', 2, 7, noisy))
    expect(summary.figures[0]?.sides['longshore']?.median).toBe(6)
    expect(summary.cores[0]).toMatchObject({ side: 'longshore', rounds: 2, noisyRounds: 2 })
  })

  it('measures two peers with one producer once where only producers are measured', () => {
    const peers = ['graphile-worker', 'graphile-default']
    expect(sidesOf(enqueue32, peers)).toEqual(['graphile-worker'])
    expect(sidesOf(enqueue32, ['graphile-default'])).toEqual(['graphile-default'])
    expect(sidesOf(drain1, peers)).toEqual(peers)
  })
})
