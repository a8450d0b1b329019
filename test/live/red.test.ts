/** The red side of the liveness suite: with a fault in the SQL a job waits for ever, and the watch finds it. */
import { describe, expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { type Weakness, weakened } from '../support/weaken.ts'
import type { FleetPlan } from './plan.ts'
import { runFleet } from './run-fleet.ts'
import { load, worker } from './scenario.ts'

const database = useDatabase()
const deployment = useDeployment(database, { audit: false, because: 'guards are taken away' })
const stage = { database, deployment }

/** What waits for ever exceeds any bound; this one is three times what a busy machine has needed without a fault. */
const BOUND_MS = 1500

/** A little of everything, on workers that sleep when it comes. */
const PLAN: FleetPlan = {
  tasks: [{ name: 'work' }, { name: 'limited', concurrency: 1 }],
  workers: [
    worker('A', { tasks: ['work', 'limited'], permits: 4 }),
    worker('B', { tasks: ['limited'], tags: ['blue'], properties: { gpu: 'a100' }, permits: 4 }),
  ],
  loads: [
    load(1, { atMs: 300, task: 'limited', isHeld: true }),
    load(2, { atMs: 400, task: 'limited', tag: 'blue', constraints: { gpu: 'a100' } }),
    load(2, { atMs: 400 }),
    load(2, { atMs: 400, delayMs: 200 }),
    load(3, { atMs: 400, links: 'workflow' }),
    load(3, { atMs: 400, links: 'chain' }),
  ],
}

const faults: [fault: string, weakness: Weakness, stalled: RegExp][] = [
  ['no worker is woken', { name: 'ring', point: 'start', insertion: 'return;' }, /could run it/],
  [
    'slots are not freed',
    { name: 'free_slots', point: 'start', insertion: 'return null;' },
    /limited, tag blue.* worker B could run it; every limit has room/,
  ],
  [
    'jobs that are due stay scheduled',
    { name: 'promote_due', point: 'start', insertion: 'return;' },
    /work; scheduled.* it is due/,
  ],
  [
    'the turn of a workflow is not passed on',
    { name: 'pass_on', guard: 'pass-turn', replacement: 'false' },
    /work; waiting.* nothing that it waits for is open/,
  ],
  [
    'jobs of a tag are claimed by nobody',
    { name: 'worker_lanes', guard: 'tag', replacement: "l.tag = 'default' and l.tag = any (w.tags)" },
    /limited, tag blue.* worker B could run it/,
  ],
  [
    'jobs with constraints are claimed by nobody',
    { name: 'worker_lanes', guard: 'constraints', replacement: "l.constraint_tag = 'c:'" },
    /limited, tag blue, gpu=a100.* worker B could run it/,
  ],
]

const fails = (weaknesses: readonly Weakness[], plan: FleetPlan) =>
  expect(weakened(database, weaknesses, () => runFleet(stage, plan, { boundMs: BOUND_MS }))).rejects

describe('a fleet with a little of everything', () => {
  it('[X10] stalls nowhere', async () => {
    const { runs } = await runFleet(stage, PLAN)
    expect(runs).toBe(13)
  })

  it.each(faults)('[X10] stalls when %s', async (_, weakness, stalled) => {
    await fails([weakness], PLAN).toThrow(stalled)
  })

  it('[X10] stalls when a slot that is freed wakes no other worker', async () => {
    const weaknesses = [
      { name: 'ring_limits', point: 'start', insertion: 'return;' },
      { name: 'leave_to_waiters', point: 'start', insertion: 'return p_room;' },
    ]
    await fails(weaknesses, PLAN).toThrow(
      /limited, tag blue, gpu=a100; ready.* worker B could run it; every limit has room/,
    )
  })
})
