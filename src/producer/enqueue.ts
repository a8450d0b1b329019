/** The verb *enqueue*: one job, in the caller's transaction or in a batch with others that are enqueued at the same time. */
import { checkOptions, readGiven } from '../job/check-options.ts'
import { JOB_OPTIONS, toWorkflowPlace, type WorkflowPlace } from '../job/enqueue-options.ts'
import { LongshoreError } from '../job/errors.ts'
import { type JobId, newJobId, toJobId } from '../job/job-id.ts'
import type { Queryable } from '../job/queryable.ts'
import { checkTask, type Task } from '../job/task.ts'
import { enqueueChunks, type NewJob } from '../postgres/enqueue-jobs.ts'
import { readTask } from '../postgres/read-jobs.ts'
import { createCallOrder } from '../runtime/call-order.ts'
import { traceEnqueue } from '../runtime/tracing.ts'
import { encodePayload } from './encode-payload.ts'
import type { EnqueueOptions, Producer } from './producer.ts'
import type { ProducerParts } from './producer-parts.ts'

const NO_OPTIONS: EnqueueOptions = Object.freeze({})
const NO_PLACE: WorkflowPlace = Object.freeze({})
const KNOWN = [...JOB_OPTIONS, 'id', 'tx']

export function createEnqueue(parts: ProducerParts): Producer['enqueue'] {
  const { calls, lanes, shapes, inserts, checkName, maxPayloadBytes } = parts
  const { schema } = calls
  const inCallOrder = createCallOrder()

  const shapeOf = (task: Task, given: EnqueueOptions) =>
    given === NO_OPTIONS
      ? shapes.withDefaults(task)
      : readGiven('JOB_INVALID', 'enqueue', () => {
          checkOptions('JOB_INVALID', 'enqueue', given, KNOWN)
          return shapes.of(task, given)
        })

  return async (task, payload, given = NO_OPTIONS) => {
    checkTask(task)
    checkName(task)
    const { shape, text: common, plain } = shapeOf(task, given)
    const place = given === NO_OPTIONS ? NO_PLACE : toWorkflowPlace(given)
    // As they are at the call: the caller may use the object again.
    const { tx, id: chosen } = given
    const id = chosen === undefined ? newJobId() : toJobId(chosen)
    const isChecked = chosen !== undefined
    const refuseOthers = async (db: Queryable, made: Set<string> | undefined) => {
      const isNew = made === undefined || made.has(id) || !isChecked
      if (!isNew) await refuseOtherTask(db, schema, id, task.name)
      return { id, task: task.name, isNew }
    }
    const send = (payload: string, insertOne: (job: NewJob) => Promise<Set<string> | undefined>) =>
      traceEnqueue(
        trace => insertOne({ id, queue: shape.queue, shape: common, payload, trace, plain, ...place }),
        { name: task.name, queue: shape.queue, jobs: 1, jobId: id },
      )
    const encoded = encodePayload(task, payload, maxPayloadBytes)
    if (tx !== undefined) {
      return calls.inTransaction(tx, encoded, async (db, text) =>
        refuseOthers(db, await send(text, job => enqueueChunks(db, schema, [[job]], { isChecked }))),
      )
    }
    const prepare = async () => {
      const text = await encoded
      await calls.whenReady()
      if (!lanes.has(shape)) await lanes.ensure([shape])
      return text
    }
    const sendAlone = (text: string) => send(text, job => inserts.insert([job], { isChecked }))
    const made = await (place.workflow === undefined
      ? sendAlone(await prepare())
      : inCallOrder(place.workflow, prepare(), sendAlone))
    return calls.once(undefined, db => refuseOthers(db, made))
  }
}

/** Ids are unique over all tasks: nothing of the one that was asked for would ever run. */
async function refuseOtherTask(db: Queryable, schema: string, id: JobId, task: string): Promise<void> {
  const known = await readTask(db, schema, id)
  if (known === task) return
  const whose =
    known === undefined
      ? 'taken by a job of another user, so no job was made: derive ids from the name of your service too'
      : `that of a job of task ${known}, so no job of task ${task} was made: derive ids from the name of the task too`
  throw new LongshoreError('JOB_INVALID', `id ${id} is ${whose}`)
}
