/** How the model test enqueues: jobs as they are planned, to the stores and to the model. */
import type { EdgePolicy, Producer } from '../../src/index.ts'
import { constraintTag } from '../../src/job/constraints.ts'
import type { JobOptions } from '../../src/job/enqueue-options.ts'
import type { NewModelJob } from './job-model.ts'
import { FREE, TIGHT, type World } from './model-world.ts'

/** `pick` and all other numbers of things: which of those that there are, counted around. */
export interface JobPlan {
  task: 'free' | 'tight'
  key?: 'a' | 'b'
  isSpecial: boolean
  needsGpu: boolean
  priority: number
  isDelayed: boolean
  workflow?: 'v' | 'w'
  halts: boolean
  parents: { pick: number; policy: EdgePolicy }[]
}
export const HOUR_MS = 3_600_000
export const GPU = { gpu: 'a100' }
export const taskOf = (name: string) => (name === 'free' ? FREE : TIGHT)

function optionsOf(plan: JobPlan): JobOptions {
  return {
    priority: plan.priority,
    ...(plan.isDelayed ? { delay: HOUR_MS } : {}),
    ...(plan.isSpecial ? { tag: 'special' } : {}),
    ...(plan.needsGpu ? { constraints: GPU } : {}),
    ...(plan.key ? { concurrencyKey: plan.key } : {}),
    ...(plan.workflow ? { workflow: plan.workflow } : {}),
    ...(plan.workflow && plan.halts ? { onWorkflowFailure: 'halt' as const } : {}),
  }
}

function modelled(id: string, plan: JobPlan): NewModelJob {
  return {
    id,
    task: plan.task,
    tag: plan.isSpecial ? 'special' : 'default',
    constraintTag: plan.needsGpu ? constraintTag(GPU) : 'c:',
    priority: plan.priority,
    isDelayed: plan.isDelayed,
    parents: new Map(),
    halts: plan.halts,
    ...(plan.key ? { key: plan.key } : {}),
    ...(plan.workflow ? { workflow: plan.workflow } : {}),
  }
}

export async function enqueue(
  world: World,
  given: JobPlan,
  count: number,
  how: 'alone' | 'committed' | 'rolled back' | 'left open',
): Promise<void> {
  const { producer, client, model } = world
  // Whoever enqueues into the same workflow would wait for the transaction.
  const { workflow: _, ...withoutWorkflow } = given
  const plan = how === 'left open' || world.transaction ? withoutWorkflow : given
  const task = taskOf(plan.task)
  const options = optionsOf(plan)
  if (how === 'alone') {
    const refs =
      count === 1
        ? [await producer.enqueue(task, 0, options)]
        : await producer.enqueueMany(task, Array<number>(count).fill(0), options)
    return model.insert(refs.map(({ id }) => modelled(id, plan)))
  }
  if (!world.transaction) {
    await client.query('begin')
    world.transaction = []
  }
  const refs = await producer.enqueueMany(task, Array<number>(count).fill(0), { ...options, tx: client })
  world.transaction.push(...refs.map(({ id }) => modelled(id, plan)))
  if (how !== 'left open') await endTransaction(world, how === 'committed')
}

export async function endTransaction(world: World, commits: boolean): Promise<void> {
  const { transaction } = world
  if (!transaction) return
  await world.client.query(commits ? 'commit' : 'rollback')
  world.transaction = undefined
  if (commits) world.model.insert(transaction)
}

/** Jobs as planned, added to the group; what they may run after: all that the group has so far. */
export function draft(
  { model }: World,
  group: ReturnType<Producer['group']>,
  plans: readonly JobPlan[],
): NewModelJob[] {
  const known = [...model.jobs.values()].filter(job => job.group === group.id).map(job => job.id)
  return plans.map(plan => {
    const parents = new Map<string, EdgePolicy>()
    for (const { pick, policy } of known.length > 0 ? plan.parents : [])
      parents.set(known[pick % known.length] as string, policy)
    const after = [...parents].map(([job, onFailure]) => ({ job, onFailure }))
    const { id } = group.add(taskOf(plan.task), 0, { ...optionsOf(plan), after })
    known.push(id)
    return { ...modelled(id, plan), parents, group: group.id }
  })
}
