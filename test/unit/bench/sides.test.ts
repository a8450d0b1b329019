/** Who takes part in a run: peers, and those whom variants name. */
import { describe, expect, it } from 'vitest'
import { OURS } from '../../../bench/peers/known-peers.ts'
import { bulk4 } from '../../../bench/scenarios/bulk-enqueues.ts'
import { constraints } from '../../../bench/scenarios/constraints.ts'
import { idleWorkers } from '../../../bench/scenarios/idle-workers.ts'
import { peerOf, peersOf } from '../../../bench/sides.ts'

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
