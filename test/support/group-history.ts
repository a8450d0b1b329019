/** Random histories of groups and workflows: each command is done to Postgres and to the model, and both must agree. */
import fc from 'fast-check'
import { audit, defineTask, type EdgePolicy, LongshoreError, type Producer } from '../../src/index.ts'
import { type Settling, workByHand } from './by-hand.ts'
import type { TestDatabase } from './database.ts'
import { GroupModel, isEnded, MAX_ATTEMPTS, MAX_RESCUES, type ModelJob, type Outcome } from './group-model.ts'

const TIGHT = 2
const retry = { attempts: MAX_ATTEMPTS, maxRescues: MAX_RESCUES }
const free = defineTask<number>({ name: 'free', retry })
const tight = defineTask<number>({ name: 'tight', concurrency: TIGHT, retry })
export const historyTasks = [free, tight]
const START = '00000000-0000-0000-0000-000000000000'

/** `pick`, `group`, `job`: which of those that there are, counted around. */
interface JobPlan {
  isTight: boolean
  parents: { pick: number; policy: EdgePolicy }[]
  workflow?: string
  halts: boolean
}

export type Command =
  | { do: 'submit'; jobs: JobPlan[] }
  | { do: 'add'; group: number; jobs: JobPlan[] }
  | { do: 'enqueue'; workflow: string; halts: boolean }
  | { do: 'claim'; worker: number; limit: number }
  | { do: 'settle'; worker: number; runs: { pick: number; outcome: Outcome }[] }
  | { do: 'cancel job'; job: number }
  | { do: 'cancel group'; group: number }
  | { do: 'worker dies'; worker: number }
  | { do: 'resume'; workflow: string }
  | { do: 'sweep' }

const workflow = fc.constantFrom('v', 'w')
const pick = fc.nat(30)
const worker = fc.nat(1)
const plan: fc.Arbitrary<JobPlan> = fc.record(
  {
    isTight: fc.boolean(),
    parents: fc.array(fc.record({ pick, policy: fc.constantFrom('fail', 'run', 'cancel') }), {
      maxLength: 3,
    }),
    workflow,
    halts: fc.boolean(),
  },
  { requiredKeys: ['isTight', 'parents', 'halts'] },
)
const outcome = fc.constantFrom<Outcome[]>('succeeded', 'succeeded', 'failed', 'retry', 'released')
const named = <Name extends string, Rest extends object>(
  name: Name,
  rest: { [K in keyof Rest]: fc.Arbitrary<Rest[K]> },
) => fc.record({ do: fc.constant(name), ...rest }) as unknown as fc.Arbitrary<{ do: Name } & Rest>

const command: fc.Arbitrary<Command> = fc.oneof(
  { weight: 3, arbitrary: named('submit', { jobs: fc.array(plan, { minLength: 1, maxLength: 6 }) }) },
  {
    weight: 2,
    arbitrary: named('add', { group: pick, jobs: fc.array(plan, { minLength: 1, maxLength: 3 }) }),
  },
  { weight: 1, arbitrary: named('enqueue', { workflow, halts: fc.boolean() }) },
  { weight: 6, arbitrary: named('claim', { worker, limit: fc.integer({ min: 1, max: 4 }) }) },
  {
    weight: 6,
    arbitrary: named('settle', {
      worker,
      runs: fc.array(fc.record({ pick, outcome }), { minLength: 1, maxLength: 4 }),
    }),
  },
  { weight: 2, arbitrary: named('cancel job', { job: pick }) },
  { weight: 1, arbitrary: named('cancel group', { group: pick }) },
  { weight: 1, arbitrary: named('worker dies', { worker }) },
  { weight: 1, arbitrary: named('resume', { workflow }) },
  { weight: 1, arbitrary: named('sweep', {}) },
)
export const history = fc.array(command, { minLength: 5, maxLength: 40, size: 'max' })

type ByHand = Awaited<ReturnType<typeof workByHand>>

/** Throws where Postgres and the model part, where an invariant is hurt, and where a group does not end without an excuse. */
export async function runHistory(
  database: TestDatabase,
  producer: Producer,
  commands: readonly Command[],
): Promise<void> {
  await clear(database)
  const model = new GroupModel()
  const workers = [await newWorker(database), await newWorker(database)]
  for (const [at, given] of commands.entries()) {
    try {
      await obey(database, producer, model, workers, given)
      await compare(database, model)
    } catch (error) {
      throw new Error(`command ${at + 1}, ${given.do}: ${(error as Error).message}`, { cause: error })
    }
  }

  await drain(database, model, workers)
  for (const job of model.left())
    if (!model.waitsForHalted(job)) throw new Error(`job ${job.id} is ${job.state}, and nothing excuses it`)
  await expectQuiet(database, model)

  for (const key of [...model.halted]) await resume(producer, model, key)
  await drain(database, model, workers)
  if (model.left().length > 0) throw new Error(`${model.left().length} jobs have not ended`)
  same('audit when all is done', await auditOf(database, true), [])
}

async function clear(database: TestDatabase): Promise<void> {
  await database.rows(
    `truncate longshore.jobs, longshore.finished_jobs, longshore.workers, longshore.lane_heads, longshore.groups,
       longshore.edges, longshore.workflows`,
  )
  await database.rows('update longshore.slot_groups set used = 0, is_draining = false')
  await database.rows('update longshore.limits set is_full = false')
}

async function newWorker(database: TestDatabase): Promise<ByHand> {
  const made = await workByHand(database, ['free', 'tight'])
  await database.rows("update longshore.workers set expires_at = now() + interval '1 day' where id = $1", [
    made.id,
  ])
  return made
}

async function obey(
  database: TestDatabase,
  producer: Producer,
  model: GroupModel,
  workers: ByHand[],
  given: Command,
): Promise<void> {
  const groups = [...model.groups.keys()]
  const groupAt = (at: number) => groups[at % Math.max(groups.length, 1)]
  switch (given.do) {
    case 'submit': {
      const group = producer.group()
      model.groups.set(group.id, { isCancelled: false })
      const made = draft(model, group, given.jobs)
      await group.submit()
      return model.insert(made)
    }
    case 'add': {
      const id = groupAt(given.group)
      if (id === undefined) return
      const group = producer.addToGroup(id)
      const made = draft(model, group, given.jobs)
      const { end, isCancelled } = model.groups.get(id) ?? { isCancelled: false }
      const refused = await group.submit().then(
        () => false,
        error => {
          if (error instanceof LongshoreError) return true
          throw error
        },
      )
      same('jobs are refused', refused, end !== undefined || isCancelled)
      if (!refused) model.insert(made)
      return
    }
    case 'enqueue': {
      const { workflow: key, halts } = given
      const options = halts ? ({ onWorkflowFailure: 'halt' } as const) : {}
      const { id } = await producer.enqueue(free, 0, { workflow: key, ...options })
      return model.insert([{ id, task: 'free', parents: new Map(), workflow: key, halts }])
    }
    case 'claim':
      await claim(model, workers[given.worker], given.limit)
      return
    case 'settle':
      return settle(model, workers[given.worker], given.runs)
    case 'cancel job': {
      const jobs = [...model.jobs.keys()]
      const id = jobs[given.job % Math.max(jobs.length, 1)]
      if (id !== undefined) same('cancel answers', await producer.cancel(id), model.cancelJob(id))
      return
    }
    case 'cancel group': {
      const id = groupAt(given.group)
      if (id !== undefined) same('cancelGroup answers', await producer.cancelGroup(id), model.cancelGroup(id))
      return
    }
    case 'worker dies': {
      const dead = workers[given.worker] as ByHand
      await database.rows(
        "update longshore.workers set expires_at = now() - interval '1 second' where id = $1",
        [dead.id],
      )
      await database.rows('select longshore.rescue(3600000, 1000)')
      model.rescue(dead.id)
      workers[given.worker] = await newWorker(database)
      return
    }
    case 'resume':
      return resume(producer, model, given.workflow)
    case 'sweep':
      return sweep(database, model)
  }
}

/** Jobs as planned, added to the group; what they may run after: all that the group has so far. */
function draft(
  model: GroupModel,
  group: ReturnType<Producer['group']>,
  plans: readonly JobPlan[],
): Parameters<GroupModel['insert']>[0] {
  const known = [...model.jobs.values()].filter(job => job.group === group.id).map(job => job.id)
  return plans.map(({ isTight, parents: wanted, workflow: key, halts }) => {
    const parents = new Map<string, EdgePolicy>()
    for (const { pick: at, policy } of known.length > 0 ? wanted : [])
      parents.set(known[at % known.length] as string, policy)
    const { id } = group.add(isTight ? tight : free, 0, {
      after: [...parents].map(([job, onFailure]) => ({ job, onFailure })),
      ...(key === undefined
        ? {}
        : { workflow: key, ...(halts ? { onWorkflowFailure: 'halt' as const } : {}) }),
    })
    known.push(id)
    return {
      id,
      task: isTight ? 'tight' : 'free',
      parents,
      group: group.id,
      halts,
      ...(key === undefined ? {} : { workflow: key }),
    }
  })
}

async function claim(model: GroupModel, by: ByHand | undefined, limit: number): Promise<number> {
  if (!by) return 0
  const claimed = await by.claim(limit)
  for (const job of claimed) model.claim(job.id, by.id, job.lease_token)
  return claimed.length
}

async function settle(
  model: GroupModel,
  by: ByHand | undefined,
  runs: readonly { pick: number; outcome: Outcome }[],
): Promise<void> {
  if (!by) return
  const running = model.running(by.id)
  const chosen = new Map<ModelJob, Outcome>()
  for (const run of running.length > 0 ? runs : [])
    chosen.set(running[run.pick % running.length] as ModelJob, run.outcome)
  const of = (isWanted: (outcome: Outcome) => boolean) =>
    [...chosen.keys()].filter(job => isWanted(chosen.get(job) as Outcome))
  const succeeded = of(outcome => outcome === 'succeeded')
  const others = of(outcome => outcome !== 'succeeded').sort((a, b) => (a.id < b.id ? -1 : 1))
  if (succeeded.length > 0) {
    same(
      'settle answers',
      await by.settle(succeeded.map(job => ({ id: job.id, token: job.token }) as Settling)),
      [],
    )
    for (const job of succeeded) model.settle(job.id, 'succeeded')
  }
  if (others.length > 0) {
    const error = { message: 'no' }
    const told = others.map(job => ({
      id: job.id,
      token: job.token,
      outcome: chosen.get(job),
      error,
      delayMs: 0,
    }))
    same('settle answers', await by.settleOthers(told), [])
    for (const job of others) model.settle(job.id, chosen.get(job) as Outcome)
  }
}

async function resume(producer: Producer, model: GroupModel, key: string): Promise<void> {
  same('resumeWorkflow answers', await producer.resumeWorkflow(key), model.resume(key))
}

async function sweep(database: TestDatabase, model: GroupModel): Promise<void> {
  await database.rows('select longshore.sweep_groups($1, 1000)', [START])
  model.close()
}

/** Run all there is, successfully. A claim that finds nothing leaves nothing behind that could run. */
async function drain(database: TestDatabase, model: GroupModel, workers: readonly ByHand[]): Promise<void> {
  const all = Array.from({ length: 100 }, (_, at) => ({ pick: at, outcome: 'succeeded' as const }))
  for (let isMoving = true; isMoving; ) {
    isMoving = false
    for (const by of workers) {
      await settle(model, by, all)
      if ((await claim(model, by, 100)) > 0) isMoving = true
    }
  }
  await sweep(database, model)
  await compare(database, model)
}

/** The watchdog holds its peace on groups that wait for a stopped workflow. */
async function expectQuiet(database: TestDatabase, model: GroupModel): Promise<void> {
  const watch = () =>
    database.rows<{ report: unknown }>(
      'select report from longshore.watch_groups($1, 1000, 100000, 3600000)',
      [START],
    )
  await watch()
  await database.rows("update longshore.groups set seen_at = now() - interval '1 hour'")
  same('the watchdog reports', (await watch())[0]?.report, null)
  for (const [id, group] of model.groups)
    if (group.end === undefined) {
      const [row] = await database.rows<{ excuse: string }>('select longshore.group_excuse($1) as excuse', [
        id,
      ])
      same(`group ${id} is excused`, row?.excuse, 'halted')
    }
}

async function compare(database: TestDatabase, model: GroupModel): Promise<void> {
  const jobs = await database.rows<{ id: string; state: string; attempts: number; rescues: number }>(
    `select id, state, attempts, rescues from longshore.jobs
     union all select id, state, attempts, rescues from longshore.finished_jobs`,
  )
  const found = new Map(jobs.map(job => [job.id, job]))
  for (const job of model.jobs.values()) {
    const { state, attempts, rescues } = found.get(job.id) ?? {}
    if (state !== job.state)
      throw new Error(`job ${name(model, job)} is ${state}, and should be ${job.state}`)
    const isCounted = !isEnded(job) || job.state === 'succeeded'
    if (isCounted)
      same(
        `attempts and rescues of job ${name(model, job)}`,
        [attempts, rescues],
        [job.attempts, job.rescues],
      )
  }
  same('the number of jobs', jobs.length, model.jobs.size)
  const groups = await database.rows<{ id: string; end_state: string | null }>(
    'select id, end_state from longshore.groups',
  )
  for (const { id, end_state: end } of groups)
    same(`the end of group ${id}`, end ?? undefined, model.groups.get(id)?.end)
  same('audit', await auditOf(database, false), [])
}

const auditOf = (database: TestDatabase, isDrained: boolean) =>
  audit({ query: async (text, values) => ({ rows: await database.rows(text, values) }) }, 'longshore', {
    isDrained,
  })

/** Its number in the history: ids differ from run to run. */
const name = (model: GroupModel, job: ModelJob) =>
  `${[...model.jobs.keys()].indexOf(job.id) + 1}${job.workflow === undefined ? '' : ` of workflow ${job.workflow}`}`

function same(what: string, found: unknown, wanted: unknown): void {
  const [is, should] = [JSON.stringify(found), JSON.stringify(wanted)]
  if (is !== should) throw new Error(`${what}: ${is}, and should be ${should}`)
}
