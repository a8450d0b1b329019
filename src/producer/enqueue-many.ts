/** The verb *enqueueMany*: many jobs of one task, all of them or none. */
import { readGiven } from '../job/check-options.ts'
import { LongshoreError } from '../job/errors.ts'
import { checkTask, type Task } from '../job/task.ts'
import { enqueueChunks, type NewJob } from '../postgres/enqueue-jobs.ts'
import { traceEnqueue } from '../runtime/tracing.ts'
import { encodeAll } from './encode-payload.ts'
import { type EnqueueManyOptions, toManyJobs } from './many-jobs.ts'
import { inChunks, queueOf, withTrace } from './new-jobs.ts'
import type { Producer } from './producer.ts'
import type { ProducerParts } from './producer-parts.ts'

export function createEnqueueMany(parts: ProducerParts): Producer['enqueueMany'] {
  const { calls, lanes, shapes, inserts, checkName, maxPayloadBytes } = parts
  const { schema } = calls

  return async <Input, Result>(
    task: Task<unknown, Result, Input, unknown>,
    payloads: readonly Input[],
    given: EnqueueManyOptions<Input> = {},
  ) => {
    checkTask(task)
    checkName(task)
    if (!Array.isArray(payloads)) {
      throw new LongshoreError('JOB_INVALID', `enqueueMany takes a list of payloads; got ${typeof payloads}`)
    }
    const { tx, drafts } = readGiven('JOB_INVALID', 'enqueueMany', () => ({
      drafts: toManyJobs<Input>(payloads, given, options => shapes.of(task, options)),
      tx: given.tx,
    }))
    const isChecked = drafts.some(job => job.isChosen)
    const how = { isChecked, isWhole: isChecked }
    const send = (payloads: string[], insertAll: (jobs: NewJob[]) => Promise<Set<string> | undefined>) => {
      const jobs = drafts.map(({ id, place, shaped: { shape, text, plain } }, n): NewJob => {
        return { id, queue: shape.queue, shape: text, payload: payloads[n] as string, plain, ...place }
      })
      if (jobs.length === 0) return Promise.resolve(undefined)
      return traceEnqueue(trace => insertAll(withTrace(jobs, trace)), {
        name: task.name,
        queue: queueOf(jobs),
        jobs: jobs.length,
        jobId: jobs.length === 1 ? jobs[0]?.id : undefined,
      })
    }
    const encoded = encodeAll(
      Array.from(payloads, payload => ({ task, payload })),
      maxPayloadBytes,
    )
    let made: Set<string> | undefined
    if (tx !== undefined) {
      made = await calls.inTransaction(tx, encoded, (db, texts) =>
        send(texts, jobs => enqueueChunks(db, schema, [...inChunks(jobs)], how)),
      )
    } else {
      const texts = await encoded
      await calls.whenReady()
      await lanes.ensure(new Set(drafts.map(job => job.shaped.shape)))
      made = await send(texts, jobs => inserts.insert(jobs, how))
    }
    // Of an id that was given twice the first made the job.
    return drafts.map(({ id, isChosen }) => ({
      id,
      task: task.name,
      isNew: !isChosen || made === undefined || made.delete(id),
    }))
  }
}
