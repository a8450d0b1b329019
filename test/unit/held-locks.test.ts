import { describe, expect, it } from 'vitest'
import { createLockWatch } from '../../src/postgres/held-locks.ts'

/** Answers each look with these locks; the last answer stays. */
function watch(...answers: { pid: number; transaction: string }[][]) {
  let looks = 0
  const query = async () => {
    const locks = answers[Math.min(looks++, answers.length - 1)] ?? []
    return {
      rows: locks.map(lock => ({
        ...{ lock: 'worker', worker: 7, stops: 'claims', login: 'shop', application: null, since: null },
        ...lock,
      })),
    }
  }
  return { look: createLockWatch({ query }, 'longshore', worker => worker === 7), looks: () => looks }
}

describe('the watch over locks', () => {
  it('[X15] says nothing of a lock that is gone at the next look, as after a rescue or a first limit', async () => {
    const { look, looks } = watch([{ pid: 1, transaction: '1/1' }], [])
    expect(await look()).toEqual([])
    expect(looks()).toBe(2)
  })

  it('[X15] tells of a session that holds on, with its process and what to do', async () => {
    const { look } = watch([{ pid: 1, transaction: '1/1' }])
    expect(await look()).toEqual([
      "connection 1 (user shop) has held a lock of longshore's for a second at least, which stops claims of worker 7: " +
        'end it with select pg_terminate_backend(1)',
    ])
  })

  it('[X15] says nothing of calls that take the lock anew each time, unless that never ends', async () => {
    const { look } = watch(...Array.from({ length: 100 }, (_, n) => [{ pid: 1, transaction: `1/${n}` }]))
    expect(await look()).toEqual([])
    await look()
    expect(await look()).toHaveLength(1)
    const others = watch(...Array.from({ length: 100 }, (_, n) => [{ pid: n, transaction: `${n}/1` }]))
    expect(await others.look()).toEqual([])
  })
})
