/**
 * Owns the making of a group: jobs and what they run after are gathered here, checked as a whole, and inserted in one
 * transaction. Jobs travel in chunks, parents first, so that each chunk finds what it names.
 */
import { checkOneOf, checkOptions } from '../job/check-options.ts'
import {
  JOB_OPTIONS,
  type JobOptions,
  type Shape,
  toShape,
  toWorkflowPlace,
  type WorkflowPlace,
} from '../job/enqueue-options.ts'
import { LongshoreError } from '../job/errors.ts'
import type { GroupRef } from '../job/group.ts'
import { EDGE_POLICIES, type EdgePolicy, type GraphJob, inOrder } from '../job/group-graph.ts'
import type { JobRef } from '../job/job.ts'
import { type JobId, jobIdOf, newJobId } from '../job/job-id.ts'
import type { Transaction } from '../job/queryable.ts'
import { checkLabel, checkTask, type Task } from '../job/task.ts'
import { shapeText } from '../postgres/enqueue-jobs.ts'
import type { NewGroupJob } from '../postgres/groups.ts'
import type { InTransaction } from './transaction.ts'

/** Something that a job runs after. */
export type Parent =
  | JobRef
  | string
  | {
      job: JobRef | string
      /** What becomes of the job if this one does not succeed: it ends as `dependency_failed` (`fail`, the default), it runs
       * all the same (`run`), or it is cancelled (`cancel`). */
      onFailure: EdgePolicy
    }

export interface GroupJobOptions extends JobOptions {
  /** What it runs after: jobs of this group. */
  after?: Parent | readonly Parent[]
  /** What messages call it. Default: its task's name and its number in the group. */
  name?: string
}

/** A job of a group, from before its submission on. The type parameter carries its result's type. */
export interface GroupJob<Result = unknown> extends JobRef<Result> {
  /** Let it run after these as well. Before the submission only. */
  after(...parents: Parent[]): GroupJob<Result>
}

/** A group that is being put together. */
export interface GroupBuilder extends GroupRef {
  add<Input, Result>(
    task: Task<unknown, Result, Input, unknown>,
    payload: NoInfer<Input>,
    options?: GroupJobOptions,
  ): GroupJob<Result>
  /**
   * Insert all of its jobs, or none. Resolves when they are durable, or, with `tx`, part of that transaction. `isNew` is false
   * when a group with this id was there before: then nothing was changed.
   */
  submit(options?: InTransaction): Promise<{ id: string; isNew: boolean }>
}

/** A job that is not encoded yet. */
export interface DraftJob extends GraphJob, WorkflowPlace {
  id: JobId
  task: Task
  payload: unknown
  shape: Shape
  parents: Map<string, EdgePolicy>
}

const KNOWN = ['after', 'name', ...JOB_OPTIONS]

export function createGroupBuilder(options: {
  id: string
  /** Jobs of the group that are there already may be parents. */
  isLive: boolean
  /** See one-task-a-name.ts. */
  checkName: (task: Task) => void
  submit: (jobs: DraftJob[], tx: Transaction | undefined) => Promise<boolean>
}): GroupBuilder {
  const drafts: DraftJob[] = []
  const ids = new Set<string>()
  let isSubmitted = false

  const checkOpen = () => {
    if (!isSubmitted) return
    throw new LongshoreError(
      'GROUP_INVALID',
      'this group has been submitted: add further jobs with addToGroup(group), or build it anew if its transaction was rolled back',
    )
  }

  const addParents = (draft: DraftJob, parents: readonly Parent[]) => {
    for (const parent of parents) {
      const given = typeof parent === 'object' && parent !== null && 'job' in parent ? parent : undefined
      const job = given ? given.job : (parent as JobRef | string)
      if (given) checkOptions('GROUP_INVALID', `${draft.label}: after`, given, ['job', 'onFailure'])
      const policy = given?.onFailure ?? 'fail'
      checkOneOf('GROUP_INVALID', `${draft.label}: onFailure`, policy, EDGE_POLICIES)
      const expected = `${draft.label}: after takes a job of this group, its id, or { job, onFailure }`
      draft.parents.set(jobIdOf(job, 'GROUP_INVALID', expected), policy)
    }
  }

  return {
    id: options.id,
    add(task, payload, given = {}) {
      checkOpen()
      checkTask(task)
      options.checkName(task)
      if (given !== null && typeof given === 'object' && ('id' in given || 'tx' in given)) {
        throw new LongshoreError(
          'GROUP_INVALID',
          'a job of a group has no id or tx of its own: give them to group({ id }) and submit({ tx })',
        )
      }
      checkOptions('GROUP_INVALID', 'add', given, KNOWN)
      const { after = [], name, ...rest } = given
      const draft: DraftJob = {
        id: newJobId(),
        label:
          name === undefined
            ? `${task.name} (job ${drafts.length + 1})`
            : checkLabel('name', name, 200, 'GROUP_INVALID'),
        task,
        payload,
        shape: toShape(task, rest),
        parents: new Map(),
        ...toWorkflowPlace(rest),
      }
      addParents(draft, Array.isArray(after) ? after : [after])
      drafts.push(draft)
      ids.add(draft.id)
      const job: GroupJob = {
        id: draft.id,
        task: task.name,
        isNew: true,
        after(...parents) {
          checkOpen()
          addParents(draft, parents)
          return job
        },
      }
      return job as GroupJob<never>
    },
    async submit(given = {}) {
      checkOptions('GROUP_INVALID', 'submit', given, ['tx'])
      checkOpen()
      if (drafts.length === 0) throw new LongshoreError('GROUP_INVALID', 'the group is empty: add jobs to it')
      const ordered = inOrder(drafts, () => options.isLive)
      isSubmitted = true
      try {
        return { id: options.id, isNew: await options.submit(ordered, given.tx) }
      } catch (error) {
        isSubmitted = false // nothing was inserted: it may be mended and tried again
        throw error
      }
    },
  }
}

/** A draft as it is inserted. */
export const toNewJob = (draft: DraftJob, payload: string): NewGroupJob => ({
  id: draft.id,
  queue: draft.shape.queue,
  shape: shapeText(draft.shape),
  payload,
  parents: draft.parents,
  ...(draft.workflow === undefined ? {} : { workflow: draft.workflow }),
  ...(draft.halts ? { halts: true } : {}),
})
