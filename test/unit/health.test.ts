import { describe, expect, it } from 'vitest'
import { createProbe, shownStore } from '../../src/runtime/health.ts'
import { readHealth } from '../../src/worker/worker-health.ts'
import type { Lives } from '../../src/worker/worker-restart.ts'
import { gate } from '../support/signals.ts'

describe('a probe', () => {
  it('asks once, however many wait for the answer, and again after it', async () => {
    let asked = 0
    const answer = gate()
    const probe = createProbe(() => {
      asked++
      return answer.opened
    })
    const all = Array.from({ length: 50 }, probe)
    expect(asked).toBe(1)
    answer.open()
    expect(new Set(await Promise.all(all))).toEqual(new Set([undefined]))
    await probe()
    expect(asked).toBe(2)
  })

  it('gives up on a store that says nothing, without asking it twice', async () => {
    let asked = 0
    const probe = createProbe(() => {
      asked++
      return new Promise(() => undefined)
    })
    expect(await probe()).toBe('no answer in 2000 ms')
    expect(await probe()).toBe('no answer in 2000 ms')
    expect(asked).toBe(1)
  })

  it('tells why, without credentials, and not at length', async () => {
    const why = async (thrown: unknown) => createProbe(() => Promise.reject(thrown))()
    expect(await why(new Error('no postgres://me:hush@db/x, nor redis://:hush@cache:1'))).toBe(
      'no postgres://***@db/x, nor redis://***@cache:1',
    )
    expect(await why(Object.assign(new AggregateError([], ''), { code: 'ECONNREFUSED' }))).toBe(
      'ECONNREFUSED',
    )
    expect(await why(new Error('x'.repeat(10_000)))).toHaveLength(300)
  })

  it('is shown in words', () => {
    expect(shownStore(undefined, 'go on')).toBe('up')
    expect(shownStore('because')).toBe('away: because')
    expect(shownStore('because', 'go on')).toBe('away (go on): because')
  })
})

describe('a worker', () => {
  it('is not ready when its beats are not answered, though Postgres answers others', async () => {
    const health = (sinceBeatMs: number) => {
      const vitals = () => ({ isAlive: true, inFlight: 0, lagMs: 0, sinceBeatMs })
      const lives = { vitals, isDrained: false, path: 'direct' } as unknown as Lives
      return readHealth(
        lives,
        { postgres: async () => undefined, redis: undefined, locks: async () => undefined },
        1000,
      )
    }
    expect(await health(999)).toMatchObject({ isReady: true, heartbeat: 'up', postgres: 'up' })
    expect(await health(1000)).toMatchObject({
      isReady: false,
      heartbeat: 'no beat was answered for 1000 ms',
      postgres: 'up',
    })
  })
})
