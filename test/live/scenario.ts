/** Short ways to write a plan. */
import type { LoadPlan, WorkerPlan } from './plan.ts'

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
