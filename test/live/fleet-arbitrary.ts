/** Fleets of unlike workers with loads that they may run, mostly: few tasks, queues, tags and properties, so that they meet. */
import fc from 'fast-check'
import type { FleetPlan, LoadPlan, TaskPlan, WorkerChange, WorkerPlan } from './plan.ts'

const TASKS = ['a', 'b', 'c']
const QUEUES = ['default', 'other']
const TAGS = ['default', 'blue']
const PROPERTIES: readonly [string, string][] = [
  ['gpu', 'a100'],
  ['gpu', 'h100'],
  ['mem', 'high'],
]
const AN_HOUR = 3_600_000
/** Everything that is planned happens by then. */
const LAST_MS = 600

const some = <T>(all: readonly T[]) => fc.subarray([...all], { minLength: 1 }) as fc.Arbitrary<readonly T[]>
const propertiesArbitrary = fc
  .subarray([...PROPERTIES])
  .map((pairs): Record<string, string> => Object.fromEntries(pairs))
const timeArbitrary = fc.integer({ min: 0, max: LAST_MS })
/** Present in so many of a hundred. */
const maybe = <K extends string, T>(key: K, percent: number, value: fc.Arbitrary<T>) =>
  fc.oneof(
    { weight: 100 - percent, arbitrary: fc.constant({}) },
    { weight: percent, arbitrary: value.map(found => ({ [key]: found })) },
  ) as fc.Arbitrary<Partial<Record<K, T>>>
const all = <T extends object[]>(...parts: { [K in keyof T]: fc.Arbitrary<T[K]> }) =>
  fc.tuple(...parts).map(made => Object.assign({}, ...made))

const taskArbitrary = (name: string, isLimited: boolean): fc.Arbitrary<TaskPlan> =>
  all(
    fc.constant({ name }),
    maybe('concurrency', isLimited ? 60 : 0, fc.integer({ min: 1, max: 5 })),
    maybe('concurrencyPerKey', isLimited ? 30 : 0, fc.integer({ min: 1, max: 2 })),
  )

/** A worker changes at most once, and is back soon after it was drained. */
const changesArbitrary: fc.Arbitrary<WorkerChange[]> = fc.oneof(
  { weight: 4, arbitrary: fc.constant<WorkerChange[]>([]) },
  timeArbitrary.map((atMs): WorkerChange[] => [
    { atMs, to: 'drain' },
    { atMs: atMs + 300, to: 'resume' },
  ]),
  fc
    .tuple(timeArbitrary, propertiesArbitrary)
    .map(([atMs, properties]): WorkerChange[] => [{ atMs, to: 'properties', properties }]),
  timeArbitrary.map((atMs): WorkerChange[] => [{ atMs, to: 'leave' }]),
)

const workerArbitrary = (name: string, tasks: readonly string[]): fc.Arbitrary<WorkerPlan> =>
  all(
    fc.record({
      name: fc.constant(name),
      tasks: some(tasks),
      queues: some(QUEUES),
      tags: some(TAGS),
      properties: propertiesArbitrary,
      permits: fc.integer({ min: 1, max: 6 }),
    }),
    maybe('slowness', 20, fc.constantFrom(2, 4)),
    // Mostly bells alone wake it: a lost one must not be hidden by the next look.
    fc.constantFrom({ pollInterval: AN_HOUR }, { pollInterval: AN_HOUR }, {}),
    fc.oneof(
      { weight: 4, arbitrary: fc.record({ changes: changesArbitrary }) },
      { weight: 1, arbitrary: fc.record({ joinsAtMs: fc.integer({ min: 1, max: LAST_MS }) }) },
    ),
  )

/** Jobs that one of the workers may run: it is chosen first, and the jobs ask for some of what it has. */
const loadArbitrary = (tasks: readonly TaskPlan[], workers: readonly WorkerPlan[]): fc.Arbitrary<LoadPlan> =>
  fc
    .record({
      worker: fc.constantFrom(...workers),
      pick: fc.record({
        task: fc.nat(),
        queue: fc.nat(),
        tag: fc.nat(),
        key: fc.integer({ min: 0, max: 2 }),
      }),
      asks: fc.subarray(['gpu', 'mem']),
      isForNobody: fc.integer({ min: 0, max: 19 }).map(n => n === 0),
      atMs: fc.oneof(fc.constant(0), timeArbitrary),
      priority: fc.constantFrom(0, 0, 1, 5, 2047),
      kind: fc.oneof(
        { weight: 2, arbitrary: keptArbitrary },
        { weight: 4, arbitrary: plainArbitrary },
        { weight: 1, arbitrary: linkedArbitrary },
      ),
    })
    .map(({ worker, pick, asks, isForNobody, atMs, priority, kind }) => {
      const task = worker.tasks[pick.task % worker.tasks.length] as string
      const isKeyed = tasks.some(({ name, concurrencyPerKey }) => name === task && concurrencyPerKey)
      const had = Object.entries(worker.properties).filter(([key]) => asks.includes(key))
      return {
        task,
        queue: worker.queues[pick.queue % worker.queues.length] as string,
        tag: isForNobody ? 'nobody' : (worker.tags[pick.tag % worker.tags.length] as string),
        constraints: Object.fromEntries(had),
        ...(isKeyed && pick.key > 0 ? { key: `k${pick.key}` } : {}),
        atMs,
        priority,
        ...kind,
      }
    })

type Kind = Pick<LoadPlan, 'count' | 'runMs' | 'isKept' | 'delayMs' | 'links'>

/** Long enough that a few workers do not keep the machine busy by themselves. */
const keptArbitrary: fc.Arbitrary<Kind> = fc.record({
  isKept: fc.constant(true),
  count: fc.integer({ min: 5, max: 30 }),
  runMs: fc.constantFrom(30, 60, 150),
})
const plainArbitrary: fc.Arbitrary<Kind> = all(
  fc.constantFrom(0, 5, 20, 100).chain(runMs =>
    fc.record({
      runMs: fc.constant(runMs),
      count: fc.integer({ min: 1, max: Math.min(25, 400 / Math.max(1, runMs)) }),
    }),
  ),
  maybe('delayMs', 30, fc.integer({ min: 1, max: LAST_MS })),
)
const linkedArbitrary: fc.Arbitrary<Kind> = fc.record({
  links: fc.constantFrom('chain', 'fan', 'workflow'),
  count: fc.integer({ min: 2, max: 6 }),
  runMs: fc.constantFrom(0, 20),
})

/** `isLimited`: tasks may have limits. */
export const fleetArbitrary = (isLimited: boolean): fc.Arbitrary<FleetPlan> =>
  fc
    .integer({ min: 1, max: TASKS.length })
    .chain(count => fc.tuple(...TASKS.slice(0, count).map(name => taskArbitrary(name, isLimited))))
    .chain(tasks => {
      const names = tasks.map(({ name }) => name)
      return fc.tuple(
        fc.constant(tasks),
        fc
          .integer({ min: 2, max: 5 })
          .chain(count =>
            fc.tuple(...['A', 'B', 'C', 'D', 'E'].slice(0, count).map(name => workerArbitrary(name, names))),
          ),
      )
    })
    .chain(([tasks, workers]) =>
      fc.record({
        tasks: fc.constant(tasks),
        workers: fc.constant(workers),
        loads: fc.array(loadArbitrary(tasks, workers), { minLength: 2, maxLength: 8 }),
      }),
    )
