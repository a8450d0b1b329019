/** Random histories on the direct path against the model of jobs. See CONTRIBUTING.md for how to repeat one. */
import { describe, expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { useModelRuns } from '../support/model-runs.ts'

const runs = useModelRuns(useDatabase())

describe('random histories, directly through Postgres', () => {
  it('[S1] [S11] every answer and every state is what the model says, and every invariant holds', async () => {
    expect(await runs.check()).toBeGreaterThan(0)
  }, 3_600_000)
})
