/**
 * Owns which fleets are tried: workers that differ in tasks, queues, tags or properties, a backlog that keeps one of them busy, and
 * jobs that come one by one for another. Jobs that share a limit with a backlog have the better priority, so that only a fault of
 * the queue keeps them from its slots.
 */
import type { Fleet } from './fleet.ts'

const PERMITS = 20
const SHARED_LIMIT = 4
const BEST = 2047
const BACKLOG = { runMs: 10, comes: { kept: 1000 } } as const
const SINGLE = { runMs: 10, comes: { perSecond: 20 } } as const

export const fleets: Readonly<Record<string, Fleet>> = {
  'two sets of tasks': {
    tasks: [{ name: 'left' }, { name: 'both' }, { name: 'right' }],
    workers: [
      { tasks: ['left', 'both'], permits: PERMITS },
      { tasks: ['both', 'right'], permits: PERMITS },
    ],
    loads: [
      { task: 'left', ...BACKLOG },
      { task: 'both', ...SINGLE },
      { task: 'right', ...SINGLE },
    ],
  },
  'a shared backlog': {
    tasks: [{ name: 'shared' }, { name: 'own' }],
    workers: [
      { tasks: ['shared'], permits: PERMITS },
      { tasks: ['shared', 'own'], permits: PERMITS },
    ],
    loads: [
      { task: 'shared', ...BACKLOG },
      { task: 'own', ...SINGLE, priority: BEST },
    ],
  },
  'two queues': {
    tasks: [{ name: 'task' }],
    workers: [
      { tasks: ['task'], queues: ['slow'], permits: PERMITS },
      { tasks: ['task'], queues: ['fast'], permits: PERMITS },
    ],
    loads: [
      { task: 'task', queue: 'slow', ...BACKLOG },
      { task: 'task', queue: 'fast', ...SINGLE },
    ],
  },
  'two tags': {
    tasks: [{ name: 'task' }],
    workers: [
      { tasks: ['task'], tags: ['default'], permits: PERMITS },
      { tasks: ['task'], tags: ['default', 'heavy'], permits: PERMITS },
    ],
    loads: [
      { task: 'task', ...BACKLOG },
      { task: 'task', tag: 'heavy', ...SINGLE, priority: BEST },
    ],
  },
  constraints: {
    tasks: [{ name: 'task' }],
    workers: [
      { tasks: ['task'], permits: PERMITS },
      { tasks: ['task'], properties: { gpu: 'a100' }, permits: PERMITS },
    ],
    loads: [
      { task: 'task', ...BACKLOG },
      { task: 'task', constraints: { gpu: 'a100' }, ...SINGLE, priority: BEST },
    ],
  },
  'a limit across constraints': {
    tasks: [{ name: 'task', concurrency: SHARED_LIMIT }],
    workers: [
      { tasks: ['task'], permits: PERMITS },
      { tasks: ['task'], properties: { gpu: 'a100' }, permits: PERMITS },
    ],
    loads: [
      { task: 'task', ...BACKLOG },
      { task: 'task', constraints: { gpu: 'a100' }, ...SINGLE, priority: BEST },
    ],
  },
  'a limit across queues': {
    tasks: [{ name: 'task', concurrency: SHARED_LIMIT }],
    workers: [
      { tasks: ['task'], queues: ['slow'], permits: PERMITS },
      { tasks: ['task'], queues: ['fast'], permits: PERMITS },
    ],
    loads: [
      { task: 'task', queue: 'slow', ...BACKLOG },
      { task: 'task', queue: 'fast', ...SINGLE, priority: BEST },
    ],
  },
  'limits by key': {
    tasks: [{ name: 'task', concurrencyPerKey: 1 }, { name: 'free' }],
    workers: [
      { tasks: ['task'], permits: PERMITS },
      { tasks: ['task', 'free'], tags: ['default', 'heavy'], permits: PERMITS },
    ],
    loads: [
      { task: 'task', keys: 10, ...BACKLOG },
      { task: 'task', keys: 10, tag: 'heavy', ...SINGLE, priority: BEST },
      { task: 'free', ...SINGLE },
    ],
  },
}
