import { describe, expect, it } from 'vitest'
import type { JobId } from '../../src/job/job-id.ts'
import { createProbe, shownStore } from '../../src/runtime/health.ts'
import { StuckHandlers } from '../../src/worker/stuck-handlers.ts'
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
    expect(await healthOf(999)).toMatchObject({ isReady: true, heartbeat: 'up', postgres: 'up' })
    expect(await healthOf(1000)).toMatchObject({
      isReady: false,
      heartbeat: 'no beat was answered for 1000 ms',
      postgres: 'up',
    })
  })

  it('[X11] tells of handlers that ignored their signal, and is not ready when they have every permit', async () => {
    const stuck = new StuckHandlers()
    const run = (id: string) => ({
      claimed: { id: id as JobId },
      handler: { task: { name: 'a-task' } },
    })
    const [first, second] = [run('a'), run('b')]
    expect(await healthOf(0, stuck)).toMatchObject({ isReady: true, handlers: 'none stuck' })
    stuck.add(first)
    expect(await healthOf(0, stuck)).toMatchObject({
      isReady: true,
      handlers: expect.stringMatching(
        /^stuck: 1 of 2 ignored their signal .* since \d{4}-.*Z \(job a of task a-task\); no job can run alone here/,
      ),
    })
    stuck.add(second)
    expect(await healthOf(0, stuck)).toMatchObject({
      isReady: false,
      handlers: expect.stringContaining('no permit is left, so it claims nothing until they return'),
    })
    stuck.delete(first)
    expect(await healthOf(0, stuck)).toMatchObject({
      isReady: true,
      handlers: expect.stringContaining('job b'),
    })
  })
})

/** Of a worker with two permits whose stores are up. */
function healthOf(sinceBeatMs: number, stuck = new StuckHandlers()) {
  const none = async () => undefined
  const vitals = () => ({ isAlive: true, inFlight: 0, lagMs: 0, sinceBeatMs })
  const lives = { vitals, isDrained: false, path: 'direct' } as unknown as Lives
  return readHealth(
    lives,
    { postgres: none, redis: undefined, locks: none, upkeep: none },
    { leaseMs: 1000, stuck, maxTasks: 2 },
  )
}
