/** The check of the liveness suite, on made-up histories: it finds what it should, and excuses what is explained. */
import { describe, expect, it } from 'vitest'
import type { TaskPlan } from './plan.ts'
import { createWatch, type Sample, type SeenJob, type SeenWorker } from './watch.ts'

const BOUND_MS = 10_000
const STEP_MS = 100

const job = (id: string, given: Partial<SeenJob> = {}): SeenJob => ({
  id,
  task: 'work',
  queue: 'default',
  tag: 'default',
  constraints: {},
  score: 0,
  state: 'ready',
  dueAtMs: 0,
  waitsFor: 0,
  isBegun: false,
  ...given,
})
const running = (id: string, worker: string, startedAtMs: number, given: Partial<SeenJob> = {}): SeenJob =>
  job(id, { state: 'running', worker, startedAtMs, isBegun: true, ...given })
const worker = (name: string, given: Partial<SeenWorker> = {}): SeenWorker => ({
  name,
  tasks: ['work'],
  queues: ['default'],
  tags: ['default'],
  properties: {},
  permits: 1,
  isDrained: false,
  inside: [],
  ...given,
})

interface Moment {
  jobs: SeenJob[]
  workers: SeenWorker[]
}

/** Samples for 15 seconds; answers the id of the job that stalls, and why, and when. */
function watched(moment: (atMs: number) => Moment, tasks: TaskPlan[] = [{ name: 'work' }]) {
  const watch = createWatch({ tasks, boundMs: BOUND_MS, mostStepMs: 3 * STEP_MS })
  for (let atMs = 0; atMs <= 15_000; atMs += STEP_MS) {
    const stall = watch.see({ atMs, ...moment(atMs) })
    if (stall) return { id: stall.job.id, why: stall.why, atMs }
  }
  return undefined
}

const limited: TaskPlan[] = [{ name: 'work', concurrency: 1 }]
const keyed: TaskPlan[] = [{ name: 'work', concurrency: 4, concurrencyPerKey: 1 }]

describe('a job is found that has not begun', () => {
  it('[X10] beside an idle worker that may run it, after the bound and not before', () => {
    const found = watched(() => ({ jobs: [job('j')], workers: [worker('A')] }))
    expect(found).toMatchObject({ id: 'j', atMs: BOUND_MS + STEP_MS })
    expect(found?.why).toContain('worker A could run it')
  })

  it('[X10] though it is due, or nothing that it waits for is open', () => {
    const idle = [worker('A')]
    expect(
      watched(() => ({ jobs: [job('j', { state: 'scheduled', dueAtMs: 50 })], workers: idle })),
    ).toMatchObject({
      id: 'j',
      why: expect.stringContaining('it is due'),
    })
    expect(watched(() => ({ jobs: [job('j', { state: 'waiting' })], workers: idle }))?.why).toContain(
      'nothing that it waits for is open',
    )
  })

  it('[X10] while the slots of its limit go to worse jobs on another worker, each for half a second', () => {
    const moment = (atMs: number): Moment => {
      const turn = Math.floor(atMs / 500)
      const id = `k${turn}`
      return {
        jobs: [running(id, 'A', turn * 500 + 10, { score: 9 }), job('j', { score: 5 })],
        workers: [worker('A', { inside: [id] }), worker('B')],
      }
    }
    expect(watched(moment, limited)).toMatchObject({
      id: 'j',
      why: expect.stringContaining('limit of work went to k'),
    })
  })

  it('[X10] while the only permit of its worker goes to worse jobs', () => {
    const moment = (atMs: number): Moment => {
      const turn = Math.floor(atMs / 500)
      const id = `k${turn}`
      return {
        jobs: [running(id, 'A', turn * 500 + 10, { score: 9 }), job('j', { score: 5 })],
        workers: [worker('A', { inside: [id] })],
      }
    }
    expect(watched(moment)).toMatchObject({ id: 'j', why: expect.stringContaining('worker A went to k') })
  })

  it('[X10] while its limit is full by the count of it, and nothing holds a slot', () => {
    const moment = (): Moment => ({ jobs: [job('j')], workers: [worker('A')] })
    expect(watched(moment, limited)).toMatchObject({ id: 'j' })
  })

  it('[X11] by the worker that has claimed it, or that ended without being settled', () => {
    const workers = [worker('A')]
    expect(watched(() => ({ jobs: [running('j', 'A', 0, { isBegun: false })], workers }))?.why).toBe(
      'A has not begun it',
    )
    expect(watched(() => ({ jobs: [running('j', 'A', 0)], workers }))?.why).toBe(
      'it ended on A and is not settled',
    )
  })

  it('[X10] behind another that should have begun, as soon as there are permits for both', () => {
    const one = watched(() => ({ jobs: [job('j'), job('k')], workers: [worker('A')] }))
    expect(one?.id).toBe('j')
    const watch = createWatch({ tasks: [], boundMs: BOUND_MS, mostStepMs: STEP_MS })
    watch.see({ atMs: 0, jobs: [job('j'), job('k')], workers: [worker('A', { permits: 2 })] })
    expect(watch.waiting.map(({ job: { id } }) => id)).toEqual(['j', 'k'])
  })
})

describe('a job is excused that waits', () => {
  const excused: [why: string, moment: (atMs: number) => Moment, tasks?: TaskPlan[]][] = [
    [
      'for its time',
      atMs => ({ jobs: [job('j', { state: 'scheduled', dueAtMs: atMs + 1 })], workers: [worker('A')] }),
    ],
    [
      'for another job or its turn',
      () => ({ jobs: [job('j', { state: 'waiting', waitsFor: 1 })], workers: [worker('A')] }),
    ],
    [
      'for a worker: none serves its task, queue, tag, or has what it asks for',
      () => ({
        jobs: [job('j', { constraints: { gpu: 'a100' } })],
        workers: [
          worker('A', { properties: { gpu: 'h100' } }),
          worker('B', { tasks: ['other'], properties: { gpu: 'a100' } }),
          worker('C', { queues: ['other'], properties: { gpu: 'a100' } }),
          worker('D', { tags: ['other'], properties: { gpu: 'a100' } }),
        ],
      }),
    ],
    [
      'for a worker that is drained',
      () => ({ jobs: [job('j')], workers: [worker('A', { isDrained: true })] }),
    ],
    [
      'for a permit that an earlier job holds',
      () => ({
        jobs: [running('k', 'A', -1, { score: 9 }), job('j')],
        workers: [worker('A', { inside: ['k'] })],
      }),
    ],
    [
      'for a permit while a handler has outlived its job',
      () => ({ jobs: [job('j')], workers: [worker('A', { inside: ['gone'] })] }),
    ],
    [
      'for a limit that one long run holds, begun before the job came',
      () => ({
        jobs: [running('k', 'A', -1, { score: 9 }), job('j')],
        workers: [worker('A', { inside: ['k'] }), worker('B')],
      }),
      limited,
    ],
    [
      'for a limit that better jobs go through one after another',
      atMs => ({
        jobs: [running(`k${Math.floor(atMs / 500)}`, 'A', atMs - 50), job('j', { score: 5 })],
        workers: [worker('A', { inside: [`k${Math.floor(atMs / 500)}`] }), worker('B')],
      }),
      limited,
    ],
    [
      'for its key, while worse jobs of other keys go through the limit of the task',
      atMs => ({
        jobs: [
          running('k', 'A', -1, { key: 'k', score: 1 }),
          ...[1, 2, 3].map(n => running(`o${n}-${Math.floor(atMs / 500)}`, 'A', atMs - 50, { score: 9 })),
          job('j', { key: 'k', score: 5 }),
        ],
        workers: [
          worker('A', {
            permits: 9,
            inside: ['k', ...[1, 2, 3].map(n => `o${n}-${Math.floor(atMs / 500)}`)],
          }),
          worker('B'),
        ],
      }),
      keyed,
    ],
    [
      'for better jobs in line for the same permit, each of which begins within a second',
      atMs => ({
        jobs: [job(`k${Math.floor(atMs / 1000)}`), job('j', { score: 5 })],
        workers: [worker('A')],
      }),
    ],
    [
      'for a permit that is free only now and then, while it was overtaken now and then',
      atMs => ({
        jobs: [...(atMs % 1000 < 300 ? [] : [running('k', 'A', -1)]), job('j', { score: 5 })],
        workers: [worker('A', { inside: atMs % 1000 < 300 ? [] : ['k'] })],
      }),
    ],
  ]
  it.each(excused)('[X10] %s', (_, moment, tasks) => {
    expect(watched(moment, tasks)).toBeUndefined()
  })

  it('[X10] while the machine stands still: a minute between two samples counts as three steps', () => {
    const watch = createWatch({ tasks: [], boundMs: BOUND_MS, mostStepMs: 3 * STEP_MS })
    const sample = (atMs: number): Sample => ({ atMs, jobs: [job('j')], workers: [worker('A')] })
    expect(watch.see(sample(0))).toBeUndefined()
    expect(watch.see(sample(60_000))).toBeUndefined()
    expect(watch.longestMs).toBe(3 * STEP_MS)
  })
})
