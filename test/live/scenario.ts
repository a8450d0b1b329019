/** Short ways to write a plan. */
import type { FleetPlan, JobPlan, LoadPlan, WorkerPlan } from './plan.ts'

/** Bells alone wake it. */
export const worker = (name: string, given: Partial<WorkerPlan> = {}): WorkerPlan => ({
  name,
  tasks: ['work'],
  queues: ['default'],
  tags: ['default'],
  properties: {},
  permits: 10,
  pollInterval: 3_600_000,
  ...given,
})

export const load = (count: number, given: Partial<LoadPlan> = {}): LoadPlan => ({
  task: 'work',
  queue: 'default',
  tag: 'default',
  constraints: {},
  priority: 0,
  atMs: 0,
  runMs: 50,
  count,
  ...given,
})

export const GPU = { gpu: 'a100' }

/** Jobs of one kind keep the four slots of a task in use; then better jobs of another kind come, for another worker. */
export const starved = (other: Partial<JobPlan>, able: Partial<WorkerPlan>): FleetPlan => ({
  tasks: [{ name: 'work', concurrency: 4 }],
  // Later, so that A has all slots.
  workers: [worker('A'), worker('B', { ...able, joinsAtMs: 100 })],
  loads: [load(20, { isKept: true, runMs: 150 }), load(5, { ...other, atMs: 300, priority: 2047 })],
})
