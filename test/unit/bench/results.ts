/** Results of a run that never was, for the tests of what is made of them. */
import type { Result } from '../../../bench/run/rounds.ts'

export const result = (side: string, round: number, rate: number, more: Partial<Result> = {}): Result => ({
  round,
  attempt: 1,
  scenario: 'drain1',
  side,
  jobs: 1000,
  figures: { rate },
  cores: { postgres: 1, producer: 0, workers: 0.5, others: more.isNoisy ? 0.9 : 0 },
  seconds: 1,
  isNoisy: false,
  ...more,
})
