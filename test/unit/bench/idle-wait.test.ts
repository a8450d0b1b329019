/** The verdict on a fleet: which waits beside an idle worker count, and which something explains. */
import { describe, expect, it } from 'vitest'
import type { Fleet } from '../../../bench/liveness/fleet.ts'
import { type FleetRun, longestIdleWait } from '../../../bench/liveness/idle-wait.ts'

const comes = { perSecond: 1 }
const fleet: Fleet = {
  tasks: [{ name: 'plain' }, { name: 'limited', concurrency: 1 }],
  workers: [
    { tasks: ['plain', 'limited'], permits: 1 },
    { tasks: ['plain', 'limited'], properties: { gpu: 'a100' }, permits: 1 },
  ],
  loads: [
    { task: 'plain', runMs: 1, comes },
    { task: 'plain', constraints: { gpu: 'a100' }, runMs: 1, comes },
    { task: 'limited', runMs: 1, comes },
    { task: 'limited', priority: 5, constraints: { gpu: 'a100' }, runMs: 1, comes },
  ],
}
const [PLAIN, PLAIN_GPU, LIMITED, LIMITED_GPU] = [0, 1, 2, 3]

let seq = 0
/** Times in milliseconds. */
const run = (load: number, worker: number, ready: number, begin: number, end: number): FleetRun => ({
  seq: seq++,
  load,
  worker,
  readyUs: ready * 1000,
  beginUs: begin * 1000,
  endUs: end * 1000,
})
const longest = (runs: readonly FleetRun[], until = 10_000) => longestIdleWait(fleet, runs, until * 1000)

describe('the longest wait of a ready job beside an idle worker', () => {
  it('[X10] is that of a job which began late', () => {
    expect(longest([run(PLAIN, 0, 0, 1500, 1600)])).toMatchObject({ ms: 1500 })
  })

  it('[X10] counts what has not begun at the end', () => {
    expect(longest([run(PLAIN_GPU, -1, 1000, Infinity, Infinity)])).toMatchObject({ ms: 9000, worker: 1 })
  })

  it('[X10] is nothing while every worker that may run the job is busy', () => {
    const busy = run(PLAIN, 1, 0, 0, 5000)
    expect(longest([busy, run(PLAIN_GPU, 1, 100, 5001, 5002)])?.ms).toBeCloseTo(1)
  })

  it('[X10] goes on while another worker works off the backlog that it could share', () => {
    const backlog = Array.from({ length: 40 }, (_, i) => run(PLAIN, 0, 0, i * 100, i * 100 + 99))
    expect(longest(backlog)).toMatchObject({ ms: 3900, worker: 1 })
  })

  it('[X10] begins anew with each job that the worker begins before it', () => {
    const shared = Array.from({ length: 40 }, (_, i) =>
      run(PLAIN, i % 2, 0, Math.floor(i / 2) * 100, Math.floor(i / 2) * 100 + 99),
    )
    expect(longest(shared)?.ms).toBeLessThan(3)
  })

  it('[X10] is explained by a full limit whose slots are held by jobs that come before', () => {
    const before = run(LIMITED, 0, 0, 0, 3000)
    expect(longest([before, run(LIMITED, 1, 10, 3001, 3002)])?.ms).toBeCloseTo(1)
  })

  it('[X10] is not explained by a limit whose slots went to worse jobs meanwhile', () => {
    const worse = Array.from({ length: 30 }, (_, i) => run(LIMITED, 0, 0, i * 100, i * 100 + 99))
    const starved = run(LIMITED_GPU, 1, 50, 3000, 3001)
    // The slot that is taken when it becomes ready explains the first 49 ms.
    expect(longest([...worse, starved])).toMatchObject({ ms: 2901, run: { load: LIMITED_GPU }, worker: 1 })
  })
})
