/** The verbs of a group: add jobs to it, read it, cancel it, close it. */
import type { FinishedGroup, GroupStatus, StuckReport } from '../job/group.ts'
import type { EdgePolicy } from '../job/group-graph.ts'
import type { JobState } from '../job/job.ts'
import type { Queryable } from '../job/queryable.ts'
import { textsOf } from './connect.ts'
import { jobArguments, type NewJob, NONE, traceArguments, workflowArguments } from './enqueue-jobs.ts'
import { explainRefusal } from './refused.ts'
import { inSchema } from './schema-name.ts'
import { asMs, toDate } from './times.ts'

export interface NewGroupJob extends NewJob {
  parents: ReadonlyMap<string, EdgePolicy>
}

export interface AddedTo {
  id: string
  name?: string
  /** It is made with these jobs. */
  isNew: boolean
}

/** `known`: the new group exists, made by another caller; `again`: made by an earlier try. Neither changed anything. */
export type AddAnswer = 'added' | 'again' | 'known'

/**
 * Add jobs in chunks, each job behind its parents, until an answer is not `added`; in one statement, so that nothing can come between.
 * `isRetried`: an earlier try may have been committed. `own`: the ids that this transaction has added before.
 */
export async function addToGroup(
  db: Queryable,
  schema: string,
  group: AddedTo,
  chunks: readonly (readonly NewGroupJob[])[],
  own: ReadonlySet<string>,
  isRetried: boolean,
): Promise<AddAnswer> {
  const added = new Set(own)
  const values: unknown[] = []
  const calls = chunks.map((jobs, at) => {
    const call = callOf(values.length)
    const into = at === 0 ? group : { id: group.id, isNew: false }
    values.push(...groupArguments(into, jobs, added, isRetried && at === 0))
    for (const job of jobs) added.add(job.id)
    return call
  })
  // What comes after the first argument that is not null is not evaluated.
  const text =
    calls.length === 1
      ? `select ${calls[0]} as answer`
      : `select coalesce(${calls.map(call => `nullif(${call}, 'added')`).join(', ')}, 'added') as answer`
  const [row] = await textsOf(db, inSchema(schema, text), values).catch(explainRefusal)
  return row?.[0] as AddAnswer
}

const TYPES = [
  ...['uuid', 'text', 'boolean', 'boolean', 'jsonb', 'uuid[]', 'int[]', 'text', 'text[]', 'boolean[]'],
  ...['int[]', 'uuid[]', 'longshore.edge_policy[]', 'uuid[]', 'text[]'],
]

const callOf = (before: number) =>
  `longshore.add_to_group(${TYPES.map((type, n) => `$${before + n + 1}::text::${type}`).join(', ')})`

function groupArguments(
  group: AddedTo,
  jobs: readonly NewGroupJob[],
  own: ReadonlySet<string>,
  isRetried: boolean,
): (string | null)[] {
  const children: number[] = []
  const parents: string[] = []
  const policies: EdgePolicy[] = []
  for (const [at, job] of jobs.entries()) {
    for (const [parent, policy] of job.parents) {
      children.push(at + 1)
      parents.push(parent)
      policies.push(policy)
    }
  }
  const here = new Set<string>(jobs.map(job => job.id))
  const held = [...new Set(parents)].filter(parent => !own.has(parent) && !here.has(parent))
  const workflows = jobs.some(job => job.workflow !== undefined) ? workflowArguments(jobs) : [null, null]
  return [
    group.id,
    group.name ?? null,
    String(group.isNew),
    String(isRetried),
    ...jobArguments(jobs).values,
    ...workflows,
    `{${children.join(',')}}`,
    `{${parents.join(',')}}`,
    `{${policies.join(',')}}`,
    `{${held.join(',')}}`,
    traceArguments(jobs),
  ]
}

/** New groups with all of their jobs, each after jobs of its own group. Refused or not, it is for all of them. */
export async function addToGroups(
  db: Queryable,
  schema: string,
  groups: readonly { group: AddedTo; jobs: readonly NewGroupJob[] }[],
): Promise<void> {
  const jobs: NewGroupJob[] = []
  const groupNumbers: number[] = []
  const numbers = new Map<string, number>()
  const children: number[] = []
  /** 0: none of these. */
  const parents: number[] = []
  const policies: EdgePolicy[] = []
  for (const [at, group] of groups.entries()) {
    for (const job of group.jobs) {
      jobs.push(job)
      numbers.set(job.id, jobs.length)
      groupNumbers.push(at + 1)
    }
  }
  for (const [at, job] of jobs.entries()) {
    for (const [parent, policy] of job.parents) {
      children.push(at + 1)
      parents.push(numbers.get(parent) ?? 0)
      policies.push(policy)
    }
  }
  await textsOf(
    db,
    inSchema(schema, 'select longshore.add_to_groups($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)'),
    [
      groups.map(({ group }) => group.id),
      groups.map(({ group }) => group.name ?? NONE),
      `{${groupNumbers.join(',')}}`,
      ...jobArguments(jobs).values,
      `{${children.join(',')}}`,
      `{${parents.join(',')}}`,
      `{${policies.join(',')}}`,
      traceArguments(jobs),
    ],
  ).catch(explainRefusal)
}

const READ = `
  select id, name, state, waiting, scheduled, ready, running, succeeded, failed, cancelled, dependency_failed,
    ${asMs('created_at')} as created_at, ${asMs('finished_at')} as finished_at, stuck
  from longshore.read_groups($1, $2)`

export async function readGroups(
  db: Queryable,
  schema: string,
  ids: readonly string[],
): Promise<GroupStatus[]> {
  const { rows } = await db.query(inSchema(schema, READ), [ids, false])
  return rows.map(toGroup)
}

/** Those of the groups that have ended. */
export async function readFinishedGroups(
  db: Queryable,
  schema: string,
  ids: readonly string[],
): Promise<FinishedGroup[]> {
  const { rows } = await db.query(inSchema(schema, READ), [ids, true])
  return rows.map(row => toGroup(row) as FinishedGroup)
}

const STATES: readonly JobState[] = [
  'waiting',
  'scheduled',
  'ready',
  'running',
  'succeeded',
  'failed',
  'cancelled',
  'dependency_failed',
]

function toGroup(row: Record<string, unknown>): GroupStatus {
  return {
    id: String(row['id']),
    name: row['name'] as string | null,
    state: row['state'] as GroupStatus['state'],
    counts: Object.fromEntries(STATES.map(state => [state, Number(row[state])])) as Record<JobState, number>,
    createdAt: toDate(row['created_at']),
    finishedAt: toDate(row['finished_at'], true),
    stuck: row['stuck'] as StuckReport | null,
  }
}

/**
 * `cancelled`: nothing of it is left. `cancelling`: jobs of it run; their signals fire, and however those runs end the jobs end
 * as cancelled. `finished`: it had ended before. `unknown`: there is no such group, or its history has been dropped.
 */
export type CancelGroupAnswer = 'cancelled' | 'cancelling' | 'finished' | 'unknown'

export async function cancelGroup(db: Queryable, schema: string, id: string): Promise<CancelGroupAnswer> {
  const { rows } = await db.query(inSchema(schema, 'select longshore.cancel_group($1) as answer'), [id])
  return rows[0]?.['answer'] as CancelGroupAnswer
}

/** Write the end of those of the groups that have ended. */
export async function closeGroups(db: Queryable, schema: string, ids: readonly string[]): Promise<void> {
  await textsOf(db, inSchema(schema, 'select from longshore.close_groups($1)'), [ids])
}

/** Let a workflow that a failure has stopped go on. Returns whether it was stopped. */
/** `not_halted`: nothing was changed; the workflow goes on anyway, is unknown, or was halted by a job of another service. */
export type ResumeWorkflowAnswer = 'resumed' | 'not_halted'

export async function resumeWorkflow(
  db: Queryable,
  schema: string,
  key: string,
): Promise<ResumeWorkflowAnswer> {
  const { rows } = await db.query(inSchema(schema, 'select longshore.resume_workflow($1) as answer'), [key])
  return rows[0]?.['answer'] === true ? 'resumed' : 'not_halted'
}
