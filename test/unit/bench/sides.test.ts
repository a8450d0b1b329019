/** Who takes part in a run: peers, and those whom variants name. */
import { describe, expect, it } from 'vitest'
import { OURS } from '../../../bench/peers/known-peers.ts'
import { peerOf, peersOf } from '../../../bench/run/sides.ts'
import { constraints } from '../../../bench/scenarios/beside-itself/constraints.ts'
import { bulk4 } from '../../../bench/scenarios/beside-peers/bulk-enqueues.ts'
import { idleWorkers } from '../../../bench/scenarios/growth/idle-workers.ts'

describe('the sides of a scenario', () => {
  it('are peers, or variants of whoever they name', () => {
    expect(peerOf(bulk4, 'pg-boss')).toBe('pg-boss')
    expect(peerOf(constraints, 'one tag')).toBe(OURS)
    expect(peerOf(idleWorkers, '100 of graphile-worker')).toBe('graphile-worker')
  })

  it('make all peers take part unless there are only variants', () => {
    const peers = ['graphile-worker', 'graphile-default', 'bullmq']
    expect(peersOf([bulk4, constraints], peers)).toEqual([...peers, OURS])
    expect(peersOf([constraints], peers)).toEqual([OURS])
    expect(peersOf([idleWorkers], peers)).toEqual(['longshore', 'graphile-worker'])
  })
})
