/** The verb *submit*: the jobs of a group, new or live, all of them or none. Small groups submitted at the same time share a commit. */
import type { Queryable, Transaction } from '../job/queryable.ts'
import { type AddedTo, addToGroup, type NewGroupJob } from '../postgres/groups.ts'
import { traceEnqueue } from '../runtime/tracing.ts'
import { encodeAll } from './encode-payload.ts'
import { createGroupBatch, isSmall } from './group-batch.ts'
import { type DraftJob, toNewJob } from './group-builder.ts'
import { BATCHES } from './insert-jobs.ts'
import { inChunks, queueOf, withTrace } from './new-jobs.ts'
import type { ProducerParts } from './producer-parts.ts'

export interface GroupSubmissions {
  /** Insert the jobs of a group. Returns whether they are there, now or by an earlier try. */
  submit(
    group: AddedTo & { isChosen?: boolean },
    drafts: DraftJob[],
    tx: Transaction | undefined,
  ): Promise<boolean>
  idle(): Promise<void>
}

export function createGroupSubmissions(
  parts: Pick<ProducerParts, 'calls' | 'lanes' | 'maxPayloadBytes'>,
): GroupSubmissions {
  const { calls, lanes, maxPayloadBytes } = parts
  const { pool, schema, patiently } = calls

  const submitChunks = (
    group: AddedTo,
    chunks: readonly (readonly NewGroupJob[])[],
    isTriedBefore = false,
  ): Promise<boolean> => {
    const insertAll = async (db: Queryable, isRetried: boolean) => {
      const own = new Set<string>()
      for (const [at, chunk] of chunks.entries()) {
        const into = at === 0 ? group : { id: group.id, isNew: false }
        const answer = await addToGroup(db, schema, into, [chunk], own, isRetried && at === 0)
        if (answer !== 'added') return answer === 'again'
        for (const job of chunk) own.add(job.id)
      }
      return true
    }
    return patiently(tries => {
      const isRetried = isTriedBefore || tries > 1
      return chunks.length === 1
        ? insertAll(pool, isRetried)
        : pool.transaction(own => insertAll(own, isRetried))
    })
  }
  const batch = createGroupBatch(pool, schema, BATCHES, (group, jobs, isRetried) =>
    submitChunks(group, [jobs], isRetried),
  )

  return {
    async submit(group, drafts, tx) {
      const encoded = encodeAll(drafts, maxPayloadBytes)
      const send = (payloads: string[], insert: (jobs: NewGroupJob[]) => Promise<boolean>) => {
        const jobs = drafts.map((draft, n) => toNewJob(draft, payloads[n] as string))
        return traceEnqueue(trace => insert(withTrace(jobs, trace)), {
          name: 'group',
          queue: queueOf(jobs),
          jobs: jobs.length,
          groupId: group.id,
        })
      }
      if (tx !== undefined) {
        return calls.inTransaction(tx, encoded, (db, payloads) =>
          send(payloads, async jobs => {
            const chunks = [...inChunks(jobs)]
            return (await addToGroup(db, schema, group, chunks, new Set(), false)) === 'added'
          }),
        )
      }
      const payloads = await encoded
      await calls.whenReady()
      await lanes.ensure(drafts.map(draft => draft.shape))
      // A group whose id was chosen may be in an open transaction of another process: other groups must not wait for that.
      return send(payloads, jobs =>
        group.isNew && !group.isChosen && isSmall(jobs)
          ? batch.add(group, jobs)
          : submitChunks(group, [...inChunks(jobs)]),
      )
    },
    idle: () => batch.idle(),
  }
}
