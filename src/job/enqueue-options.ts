/** Owns the options of one enqueue: checked here and turned into the *shape* that travels to Postgres. */
import { constraintTag } from './constraints.ts'
import { type Duration, toMs } from './duration.ts'
import { LongshoreError } from './errors.ts'
import { checkLabel, type Task } from './task.ts'

export interface JobOptions {
  /** 0 (default) to 2047; higher runs first. */
  priority?: number
  /** Not before this long from now, by the database's clock. */
  delay?: Duration
  /** Not before this moment. */
  runAt?: Date
  /** Overrides the task's `retry.attempts`. */
  attempts?: number
  /** Overrides the task's tag. */
  tag?: string
  /** Overrides the task's queue. */
  queue?: string
  /** What a worker must have to run it, by declared property key: `{ gpu: 'a100' }`. Default: nothing. */
  constraints?: Readonly<Record<string, string>>
}

/** What many jobs of one call have in common. The field names are those that `enqueue_jobs` reads. */
export interface Shape {
  queue: string
  task: string
  tag: string
  constraintTag: string
  maxAttempts: number
  priority: number
  runAt?: number
  delayMs?: number
}

const LAST_RUN_AT_MS = 2 ** 42 - 1
const KNOWN = new Set(['priority', 'delay', 'runAt', 'attempts', 'tag', 'queue', 'constraints', 'id', 'tx'])

export function toShape(task: Task, options: JobOptions): Shape {
  for (const key of Object.keys(options)) {
    if (!KNOWN.has(key)) {
      throw new LongshoreError(
        'JOB_INVALID',
        `unknown option ${JSON.stringify(key)}: options are ${[...KNOWN].join(', ')}`,
      )
    }
  }
  const { priority = 0, attempts = task.maxAttempts, delay, runAt } = options
  checkWhole('priority', priority, 0, 2047)
  checkWhole('attempts', attempts, 1, 1000)
  const shape: Shape = {
    queue: options.queue === undefined ? task.queue : checkLabel('queue', options.queue),
    task: task.name,
    tag: options.tag === undefined ? task.tag : checkLabel('tag', options.tag),
    constraintTag: constraintTag(options.constraints),
    maxAttempts: attempts,
    priority,
  }
  if (delay !== undefined && runAt !== undefined) {
    throw new LongshoreError('JOB_INVALID', 'give delay or runAt, not both')
  }
  if (delay !== undefined) shape.delayMs = toMs(delay, 'delay')
  if (runAt !== undefined) {
    const ms = runAt instanceof Date ? runAt.getTime() : Number.NaN
    if (!(ms >= 0 && ms <= LAST_RUN_AT_MS)) {
      throw new LongshoreError(
        'JOB_INVALID',
        `runAt must be a Date between 1970 and 2109; got ${String(runAt)}`,
      )
    }
    shape.runAt = ms
  }
  return shape
}

function checkWhole(what: string, value: number, least: number, most: number): void {
  if (!Number.isInteger(value) || value < least || value > most) {
    throw new LongshoreError(
      'JOB_INVALID',
      `${what} must be a whole number from ${least} to ${most}; got ${String(value)}`,
    )
  }
}
