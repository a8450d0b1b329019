/** Owns the jobs of one `enqueueMany`: the options that they share, and those that each has of its own. */
import { checkOptions } from '../job/check-options.ts'
import {
  JOB_OPTIONS,
  type JobOptions,
  toWorkflowPlace,
  type WorkflowPlace,
  withOwn,
} from '../job/enqueue-options.ts'
import { LongshoreError } from '../job/errors.ts'
import { type JobId, newJobId, toJobId } from '../job/job-id.ts'
import { shown } from '../job/shown.ts'
import type { Shaped } from './job-shapes.ts'
import type { InTransaction } from './transaction.ts'

/** What one job of many can have of its own. */
export interface EachJobOptions extends JobOptions {
  /** A UUID of your own: enqueueing it again changes nothing, also when the job has run meanwhile. */
  id?: string | undefined
}

export interface EnqueueManyOptions<Input> extends JobOptions, InTransaction {
  /** The options of one job, which come before those that all share: `each: (order, index) => ({ id: ids[index] })`. */
  each?: (payload: Input, index: number) => EachJobOptions | undefined
}

/** One of them, not encoded yet. */
export interface ManyJob {
  id: JobId
  /** The id is the caller's, so the job may be known already. */
  isChosen: boolean
  shaped: Shaped
  place: WorkflowPlace
}

const KNOWN = [...JOB_OPTIONS, 'each', 'tx']
const KNOWN_OF_EACH = [...JOB_OPTIONS, 'id']

export function toManyJobs<Input>(
  payloads: readonly Input[],
  given: EnqueueManyOptions<Input>,
  shapeOf: (options: JobOptions) => Shaped,
): ManyJob[] {
  if (typeof given === 'object' && given !== null && 'id' in given) {
    throw new LongshoreError(
      'JOB_INVALID',
      'enqueueMany: id is for one job: give each its own with `each: (payload, index) => ({ id: ids[index] })`',
    )
  }
  checkOptions('JOB_INVALID', 'enqueueMany', given, KNOWN)
  const { each, ...shared } = given
  if (each !== undefined && typeof each !== 'function') {
    throw new LongshoreError(
      'JOB_INVALID',
      `enqueueMany: each must be a function (payload, index) => options; got ${shown(each)}`,
    )
  }
  const common = { shaped: shapeOf(shared), place: toWorkflowPlace(shared) }
  return Array.from(payloads, (payload, index): ManyJob => {
    const own = each?.(payload, index)
    if (own === undefined) return { id: newJobId(), isChosen: false, ...common }
    checkOwn(own, index)
    const { id, ...rest } = own
    const options = withOwn(shared, rest)
    return {
      id: id === undefined ? newJobId() : toJobId(id),
      isChosen: id !== undefined,
      shaped: shapeOf(options),
      place: toWorkflowPlace(options),
    }
  })
}

function checkOwn(own: EachJobOptions, index: number): void {
  const what = `enqueueMany: each, for payload ${index}`
  if (own instanceof Promise)
    throw new LongshoreError('JOB_INVALID', `${what}: got a promise: look up what you need before the call`)
  checkOptions('JOB_INVALID', what, own, KNOWN_OF_EACH)
}
