import { describe, expect, it } from 'vitest'
import { readWorkerSettings } from '../../src/runtime/config.ts'

describe('worker settings', () => {
  it('[W3] [W4] [W5] have the documented defaults', () => {
    expect(readWorkerSettings({}, {})).toMatchObject({
      maxConcurrentTasks: 1000,
      claimBatchSize: 50,
      pollIntervalMs: 100,
    })
  })

  it('take options before the environment before the defaults', () => {
    const env = { MAX_CONCURRENT_TASKS: '5', CLAIM_BATCH_SIZE: '6' }
    expect(readWorkerSettings({ claimBatchSize: 7 }, env)).toMatchObject({
      maxConcurrentTasks: 5,
      claimBatchSize: 7,
      pollIntervalMs: 100,
    })
  })

  it('tell all problems at once', () => {
    expect(() =>
      readWorkerSettings({ claimBatchSize: 0 }, { MAX_CONCURRENT_TASKS: 'many', POLL_INTERVAL_MS: '1.5' }),
    ).toThrow(/maxConcurrentTasks.*claimBatchSize.*pollIntervalMs/)
  })
})
