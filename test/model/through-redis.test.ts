/** Random histories through Redis, with relays, against the model of jobs. See CONTRIBUTING.md for how to repeat one. */
import { describe, expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { useModelRuns } from '../support/model-runs.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis()
const runs = useModelRuns(useDatabase(), redis)

describe('random histories through Redis', () => {
  it('[S1] [S11] [X2] every answer and every state is what the model says, and every invariant holds', async () => {
    expect(await runs.check()).toBeGreaterThan(0)
  }, 3_600_000)
})
