/**
 * The commands of the model test as fast-check makes them. A command is data, so a history that fails is printed, shrunk and
 * repeated.
 */
import fc from 'fast-check'
import type { EdgePolicy } from '../../src/index.ts'
import type { JobModel, OutcomeKind } from './job-model.ts'
import type { Run } from './model-calls.ts'
import { compare } from './model-compare.ts'
import type { JobPlan } from './model-jobs.ts'
import { type Command, obey } from './model-steps.ts'
import type { Facts, World } from './model-world.ts'

const pick = fc.nat(30)
const worker = fc.nat(2)
const workflow = fc.constantFrom('v' as const, 'v' as const, 'w' as const)
const oneIn = (count: number) => fc.nat(count - 1).map(chance => chance === count - 1)
const seldom = oneIn(6)
const parents = fc.array(
  fc.record({ pick, policy: fc.constantFrom<EdgePolicy[]>('fail', 'run', 'cancel') }),
  {
    maxLength: 3,
  },
)
const plan: fc.Arbitrary<JobPlan> = fc
  .record({
    kind: fc.constantFrom(
      { task: 'free' as const },
      { task: 'free' as const },
      { task: 'free' as const },
      { task: 'tight' as const },
      { task: 'tight' as const, key: 'a' as const },
      { task: 'tight' as const, key: 'b' as const },
    ),
    isSpecial: seldom,
    needsGpu: seldom,
    priority: fc.constantFrom(0, 0, 0, 7),
    isDelayed: oneIn(10),
    order: fc.oneof(
      { weight: 3, arbitrary: fc.constant({ halts: false }) },
      { weight: 2, arbitrary: fc.record({ workflow, halts: fc.boolean() }) },
    ),
    parents,
  })
  .map(({ kind, order, ...rest }) => ({ ...kind, ...order, ...rest }))
const facts: fc.Arbitrary<Facts> = fc.record({
  tasks: fc.constantFrom(['free', 'tight'], ['free', 'tight'], ['free'], ['tight']),
  isSpecial: fc.boolean(),
  hasGpu: fc.boolean(),
})
const someRuns: fc.Arbitrary<Run[]> = fc.array(
  fc.record({
    pick,
    isOld: oneIn(4),
    kind: fc.constantFrom<OutcomeKind[]>(
      'succeeded',
      'succeeded',
      'failed',
      'retry',
      'retry later',
      'released',
    ),
  }),
  { maxLength: 4 },
)
/** Ends that come together, as those of parents with the same child. */
const allSucceed = fc.constant([0, 1, 2, 3].map((at): Run => ({ pick: at, kind: 'succeeded' })))
const runs = fc.oneof({ weight: 3, arbitrary: someRuns }, { weight: 1, arbitrary: allSucceed })
const named = <Name extends string, Rest extends object>(
  name: Name,
  rest: { [K in keyof Rest]: fc.Arbitrary<Rest[K]> },
) => fc.record({ do: fc.constant(name), ...rest }) as unknown as fc.Arbitrary<Command>

const call = named('call', {
  // One of them more than others: it runs jobs again, and several at once.
  worker: fc.constantFrom(0, 0, 0, 1, 2, 3),
  limit: fc.constantFrom(0, 1, 2, 4, 4),
  runs,
  isDirect: oneIn(4),
  isLate: oneIn(5),
})
const send = named('send', {
  call: pick,
  how: fc.constantFrom('answered', 'answered', 'answer lost', 'never sent'),
})
const dies = named('worker dies', { worker, facts, rescued: fc.constantFrom(1000, 1000, 1, 0, 0) })
const limits = named('limits', {
  all: fc.constantFrom(1, 2, 3, 4, undefined),
  perKey: fc.constantFrom(1, 1, 2, 2, undefined),
})
const cancelJob = named('cancel job', { job: pick })
const change = named('change', {
  job: pick,
  to: fc.constantFrom('priority', 'later', 'now', 'gpu', 'no gpu'),
})
const flush = named('flush', {})
const follows = (how: fc.Arbitrary<string>) => named('relay follows', { former: how })

type Weighted = [weight: number, arbitrary: fc.Arbitrary<Command>]
const everywhere: Weighted[] = [
  [
    8,
    named('enqueue', {
      job: plan,
      count: fc.constantFrom(1, 2, 2, 4),
      how: fc.constantFrom('alone', 'alone', 'alone', 'committed', 'rolled back', 'left open'),
    }),
  ],
  [1, named('enqueue again', { job: pick })],
  [1, named('end transaction', { commits: fc.boolean() })],
  [3, named('submit', { jobs: fc.array(plan, { minLength: 1, maxLength: 5 }) })],
  [1, named('add', { group: pick, jobs: fc.array(plan, { minLength: 1, maxLength: 3 }) })],
  [20, call],
  [3, send],
  [2, cancelJob],
  [1, named('cancel group', { group: pick })],
  [3, change],
  [1, named('time comes', {})],
  [1, named('resume', { workflow })],
  [1, named('sweep', {})],
  [2, dies],
  [1, named('rescue', {})],
  [1, named('worker restarts', { worker, facts })],
  [1, named('properties', { worker, hasGpu: fc.boolean() })],
  [2, limits],
  [2, named('renew', {})],
  [2, named('forget lanes', { isCut: oneIn(4) })],
  [2, named('forget limits', {})],
]
const rest = named('rest', { worker, limit: fc.integer({ min: 1, max: 4 }) })
const withRedis: Weighted[] = [
  [
    4,
    named('relay', {
      turns: fc.integer({ min: 1, max: 2 }),
      gap: fc.oneof(
        { weight: 1, arbitrary: fc.constant(null) },
        {
          weight: 1,
          arbitrary: fc.oneof(
            call,
            send,
            dies,
            limits,
            cancelJob,
            change,
            flush,
            follows(fc.constant('goes on')),
          ),
        },
      ),
    }),
  ],
  [4, named('beat', { hears: fc.constantFrom([0, 1, 2], [0, 1, 2], [0], [1, 2]) })],
  [1, named('relay audits', {})],
  [1, follows(fc.constantFrom('stops', 'dies', 'goes on'))],
  [1, named('former relay', {})],
  [1, flush],
  [2, named('hint', {})],
  [3, named('offer', { worker, job: pick, limit: fc.integer({ min: 1, max: 3 }), isLate: seldom })],
  [2, named('tell', { worker })],
]

/** Half of the time the relay knows of it before anything else happens. */
const relayed = (arbitrary: fc.Arbitrary<Command>): fc.Arbitrary<Command> =>
  fc
    .tuple(arbitrary, fc.boolean())
    .map(([command, isRelayed]) => (isRelayed ? { ...command, isRelayed } : command))

/** One arbitrary for each kind of command, as often as its weight says. */
export const commandsOf = (isWithRedis: boolean): fc.Arbitrary<Step>[] => {
  const both = everywhere.map(
    ([weight, arbitrary]): Weighted => [weight, isWithRedis ? relayed(arbitrary) : arbitrary],
  )
  return [...both, [2, rest] as const, ...(isWithRedis ? withRedis : [])].flatMap(([weight, arbitrary]) =>
    Array.from({ length: weight }, () => arbitrary.map(command => new Step(command))),
  )
}

/** A command as fast-check wants it. */
export class Step implements fc.AsyncCommand<JobModel, World> {
  readonly #command: Command
  constructor(command: Command) {
    this.#command = command
  }
  check(model: Readonly<JobModel>): boolean {
    return isPossible(model, this.#command)
  }
  async run(_: JobModel, world: World): Promise<void> {
    try {
      await obey(world, this.#command)
      await compare(world)
    } catch (error) {
      throw new Error(`${this}: ${withNumbers(world, (error as Error).message)}`, { cause: error })
    }
  }
  toString(): string {
    return JSON.stringify(this.#command)
  }
}

/** Jobs by their number in the history: ids differ from run to run. */
export function withNumbers({ model }: Pick<World, 'model'>, text: string): string {
  let told = text
  for (const [at, id] of [...model.jobs.keys()].entries()) told = told.replaceAll(id, `#${at + 1}`)
  return told
}

/** What would do nothing is left out. */
function isPossible(model: Readonly<JobModel>, command: Command): boolean {
  switch (command.do) {
    case 'enqueue again':
    case 'cancel job':
    case 'change':
      return model.jobs.size > 0
    case 'add':
    case 'cancel group':
      return model.groups.size > 0
    case 'resume':
      return model.halted.size > 0
    case 'time comes':
      return model.left().some(job => job.isDelayed)
    case 'relay':
      return command.gap === null || isPossible(model, command.gap)
    default:
      return true
  }
}
