/** Which lanes a producer knows to exist, and for how long. */
import { describe, expect, it } from 'vitest'
import type { Shape } from '../../src/job/enqueue-options.ts'
import type { Pool } from '../../src/postgres/connect.ts'
import { createKnownLanes } from '../../src/producer/known-lanes.ts'

const HOUR_MS = 3_600_000
const shape = {
  queue: 'default',
  task: 't',
  tag: 'default',
  constraintTag: 'c:',
  maxAttempts: 3,
  priority: 0,
} as Shape

describe('a lane that a producer knows', () => {
  it('[X12] is asked for again after 12 hours, since a lane that is not used is deleted after days', async () => {
    let now = 0
    let asked = 0
    const pool = {
      query: async () => {
        asked++
        return { rows: [] }
      },
    } as unknown as Pool
    const lanes = createKnownLanes(
      pool,
      'longshore',
      work => work(1),
      () => now,
    )
    expect(lanes.has(shape)).toBe(false)
    await Promise.all([lanes.ensure([shape]), lanes.ensure([shape])])
    expect([lanes.has(shape), asked]).toEqual([true, 1])
    now = 12 * HOUR_MS - 1
    await lanes.ensure([shape])
    expect([lanes.has(shape), asked]).toEqual([true, 1])
    now = 12 * HOUR_MS
    expect(lanes.has(shape)).toBe(false)
    await Promise.all([lanes.ensure([shape]), lanes.ensure([shape])])
    expect([lanes.has(shape), asked]).toEqual([true, 2])
  })
})
