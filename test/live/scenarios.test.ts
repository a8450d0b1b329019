/** Fleets in which a worker once slept beside work, or might, one by one. */
import { describe, expect } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { itHolds } from './known-failures.ts'
import type { FleetPlan, JobPlan, TaskPlan, WorkerPlan } from './plan.ts'
import { runFleet } from './run-fleet.ts'
import { GPU, load, starved, worker } from './scenario.ts'

const database = useDatabase()
const stage = { database, deployment: useDeployment(database) }

const stallsNot = (name: string, title: string, plan: FleetPlan) =>
  itHolds(name, title, async bound => {
    await runFleet(stage, plan, bound)
  })

/** Jobs of another kind, and the worker that may run them. */
const kinds: [kind: string, other: Partial<JobPlan>, able: Partial<WorkerPlan>][] = [
  ['constraint', { constraints: GPU }, { properties: GPU }],
  ['queue', { queue: 'other' }, { queues: ['other'] }],
  ['tag', { tag: 'blue' }, { tags: ['blue'] }],
]

describe('a worker with a free permit gets its share of', () => {
  for (const [kind, other, able] of kinds) {
    const name = `a limit that a backlog of another ${kind} keeps full`
    stallsNot(name, `[X10] ${name}`, starved(other, able))
  }

  const name = 'the limit of a key that a backlog of another constraint keeps full'
  stallsNot(name, `[X10] [L8] ${name}`, {
    tasks: [{ name: 'work', concurrencyPerKey: 2 }],
    workers: [worker('A'), worker('B', { properties: GPU, joinsAtMs: 100 })],
    loads: [
      load(30, { key: 'k', isKept: true }),
      load(4, { key: 'k', atMs: 300, constraints: GPU, priority: 2047 }),
    ],
  })
})

describe('a worker that sleeps until a limit has room', () => {
  for (const [limit, task, key] of [
    ['task', { concurrency: 1 }, {}],
    ['key', { concurrencyPerKey: 1 }, { key: 'k' }],
  ] satisfies [string, Partial<TaskPlan>, Partial<JobPlan>][]) {
    const name = `is woken when the slot of a ${limit} is freed that the other worker had used once more`
    stallsNot(name, `[X10] ${name}`, {
      tasks: [{ name: 'work', ...task }],
      workers: [worker('A', { permits: 1 }), worker('B', { tags: ['blue'] })],
      loads: [
        load(1, { ...key, isHeld: true }),
        load(1, { ...key, atMs: 100, tag: 'blue' }),
        load(1, { ...key, atMs: 500, priority: 5 }),
      ],
    })
  }
})

describe('the slot that is freed next', () => {
  for (const [kind, other, able] of kinds) {
    const name = `goes to the better job, of another ${kind} and another worker`
    itHolds(name, `[X10] [C7] ${name}`, async () => {
      const { begun } = await runFleet(stage, {
        tasks: [{ name: 'work', concurrency: 1 }],
        workers: [worker('A'), worker('B', { ...able, joinsAtMs: 100 })],
        loads: [
          load(1, { isHeld: true }),
          load(10, { atMs: 100, runMs: 10 }),
          load(5, { ...other, atMs: 200, runMs: 10, priority: 5 }),
        ],
      })
      expect(begun).toHaveLength(16)
      // A slot is left to a worker for a second: on a busy machine now and then one may go to a worse job.
      const before = begun.slice(0, begun.lastIndexOf(2)).filter(number => number === 1)
      expect(before.length).toBeLessThanOrEqual(2)
    })
  }
})

describe('a job begins', () => {
  const slow = 'on the fast of two workers, while the slow one is busy'
  stallsNot(slow, `[X10] [D14] ${slow}`, {
    tasks: [{ name: 'work' }],
    workers: [worker('slow', { permits: 2, slowness: 40 }), worker('fast', { permits: 2 })],
    loads: [load(12), load(1, { atMs: 200 }), load(6, { atMs: 400 })],
  })

  const other = 'beside a worker of many tasks of which one has a backlog'
  stallsNot(other, `[X10] ${other}`, {
    tasks: ['one', 'two', 'three', 'four', 'five', 'six'].map(name => ({ name })),
    workers: [
      worker('many', { tasks: ['one', 'two', 'three', 'four', 'five'], permits: 3 }),
      worker('few', { tasks: ['six'] }),
    ],
    loads: [
      load(40, { task: 'one', isKept: true }),
      load(3, { task: 'six', atMs: 200 }),
      load(3, { task: 'four', atMs: 300, priority: 1 }),
      load(1, { task: 'six', atMs: 600 }),
    ],
  })

  const behind = 'on the worker that alone may run it, behind a crowd of better jobs that nobody may'
  stallsNot(behind, `[X10] [C10] ${behind}`, {
    tasks: [{ name: 'work' }],
    workers: [worker('A')],
    loads: [load(200, { constraints: GPU, priority: 2047 }), load(3, { atMs: 200 })],
  })
})
