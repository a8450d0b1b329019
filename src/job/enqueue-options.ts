/** Owns the options of one enqueue: checked here and turned into the *shape* that travels to Postgres. */
import { checkOneOf, checkOptions, checkWhole as checkWholeNumber } from './check-options.ts'
import { constraintTag } from './constraints.ts'
import { type Duration, toMs } from './duration.ts'
import { LongshoreError } from './errors.ts'
import { shown } from './shown.ts'
import { checkLabel, type Task } from './task.ts'

export interface JobOptions {
  /** 0 (default) to 2047; higher runs first. */
  priority?: number
  /** Not before this long from now, by the database's clock. */
  delay?: Duration
  /** Not before this moment. */
  runAt?: Date
  /** Overrides the task's `retry.maxAttempts`. */
  maxAttempts?: number
  /** Overrides the task's tag. */
  tag?: string
  /** Overrides the task's queue. */
  queue?: string
  /** Jobs of the task with the same key are limited by its `concurrencyPerKey`: a tenant, an account. */
  concurrencyKey?: string
  /** What a worker must have to run it, by declared property key: `{ gpu: 'a100' }`. Default: nothing. */
  constraints?: Readonly<Record<string, string>>
  /**
   * Jobs with the same key run one after another, over all workers, in the order in which they were enqueued: calls of one
   * producer's `enqueue` in their order, also when they are not awaited; transactions in the order in which they first enqueued
   * into the workflow. Until such a transaction ends, others that enqueue into it wait, and so does the end of its job that runs:
   * keep them short.
   */
  workflow?: string
  /**
   * What a final failure of this job means for its workflow: the next job runs (default), or none until it is resumed. So does a
   * failure of what it was to run after, at once; a cancel never halts.
   */
  onWorkflowFailure?: 'continue' | 'halt'
}

/** The options of a job and of those that it shares with others: its own come first, and what is undefined says nothing. */
export function withOwn(shared: JobOptions, own: JobOptions): JobOptions {
  const isTimed = own.delay !== undefined || own.runAt !== undefined
  const { delay, runAt, ...rest } = shared
  const said = Object.entries(own).filter(([, value]) => value !== undefined)
  return { ...(isTimed ? rest : shared), ...Object.fromEntries(said) }
}

/** What can be changed while a job has not started. */
export type ChangeOptions = Pick<JobOptions, 'priority' | 'delay' | 'runAt' | 'constraints'>

/** What many jobs of one call have in common. The field names are those that `enqueue_jobs` reads. */
export interface Shape {
  queue: string
  task: string
  tag: string
  constraintTag: string
  concurrencyKey?: string
  maxAttempts: number
  priority: number
  runAt?: number
  delayMs?: number
}

/** The field names are those that `change` reads. */
export type Change = Partial<Pick<Shape, 'priority' | 'runAt' | 'delayMs' | 'constraintTag'>>

const LAST_RUN_AT_MS = 2 ** 42 - 1
export const JOB_OPTIONS: readonly string[] = Object.keys({
  priority: true,
  delay: true,
  runAt: true,
  maxAttempts: true,
  tag: true,
  queue: true,
  constraints: true,
  concurrencyKey: true,
  workflow: true,
  onWorkflowFailure: true,
} satisfies Record<keyof JobOptions, true>)
const KNOWN_CHANGES = ['priority', 'delay', 'runAt', 'constraints']

export function toShape(task: Task, options: JobOptions): Shape {
  const { priority = 0, maxAttempts = task.maxAttempts } = options
  checkWhole('priority', priority, 0, 2047)
  checkWhole('maxAttempts', maxAttempts, 1, 1000)
  const shape: Shape = {
    queue:
      options.queue === undefined ? task.queue : checkLabel('queue', options.queue, undefined, 'JOB_INVALID'),
    task: task.name,
    tag: options.tag === undefined ? task.tag : checkLabel('tag', options.tag, undefined, 'JOB_INVALID'),
    constraintTag: constraintTag(options.constraints),
    maxAttempts,
    priority,
  }
  if (options.concurrencyKey !== undefined) {
    if (task.concurrencyPerKey === undefined) {
      throw new LongshoreError(
        'JOB_INVALID',
        `task ${task.name} has no concurrencyPerKey, so concurrencyKey would limit nothing: declare it with defineTask`,
      )
    }
    shape.concurrencyKey = checkLabel('concurrencyKey', options.concurrencyKey, 200, 'JOB_INVALID')
  }
  return Object.assign(shape, toTime(options))
}

/** The workflow that a job belongs to, and whether its failure stops it. */
export interface WorkflowPlace {
  workflow?: string
  halts?: boolean
}

export function toWorkflowPlace({ workflow, onWorkflowFailure }: JobOptions): WorkflowPlace {
  if (workflow === undefined) {
    if (onWorkflowFailure === undefined) return {}
    throw new LongshoreError('JOB_INVALID', 'onWorkflowFailure is for a job with a workflow: give that too')
  }
  if (onWorkflowFailure !== undefined)
    checkOneOf('JOB_INVALID', 'onWorkflowFailure', onWorkflowFailure, ['continue', 'halt'])
  return {
    workflow: checkLabel('workflow', workflow, 200, 'JOB_INVALID'),
    ...(onWorkflowFailure === 'halt' ? { halts: true } : {}),
  }
}

export function toChange(options: ChangeOptions): Change {
  checkOptions('JOB_INVALID', 'change', options, KNOWN_CHANGES)
  const change: Change = toTime(options)
  if (options.priority !== undefined) {
    checkWhole('priority', options.priority, 0, 2047)
    change.priority = options.priority
  }
  if (options.constraints !== undefined) change.constraintTag = constraintTag(options.constraints)
  if (Object.keys(change).length === 0) {
    throw new LongshoreError('JOB_INVALID', `nothing to change: give one of ${KNOWN_CHANGES.join(', ')}`)
  }
  return change
}

function toTime({ delay, runAt }: Pick<JobOptions, 'delay' | 'runAt'>): Pick<Shape, 'runAt' | 'delayMs'> {
  if (delay !== undefined && runAt !== undefined) {
    throw new LongshoreError('JOB_INVALID', 'give delay or runAt, not both')
  }
  if (delay !== undefined) return { delayMs: toMs(delay, 'delay', 'JOB_INVALID') }
  if (runAt !== undefined) {
    const ms = runAt instanceof Date ? runAt.getTime() : Number.NaN
    if (!(ms >= 0 && ms <= LAST_RUN_AT_MS)) {
      throw new LongshoreError(
        'JOB_INVALID',
        `runAt must be a Date between 1970 and 2109; got ${shown(runAt)}`,
      )
    }
    return { runAt: ms }
  }
  return {}
}

const checkWhole = (what: string, value: number, least: number, most: number) =>
  checkWholeNumber('JOB_INVALID', what, value, least, most)
