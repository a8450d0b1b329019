/** Owns inserting jobs outside a caller's transaction: single ones in shared batches, many in chunks of one transaction. */
import type { Queryable } from '../job/queryable.ts'
import { type EnqueueHow, enqueueChunks, enqueueJobs, type NewJob } from '../postgres/enqueue-jobs.ts'
import type { PostgresCalls } from './call-postgres.ts'
import { createEnqueueBatch } from './enqueue-batch.ts'
import type { JobHints } from './hint-jobs.ts'
import { inChunks } from './new-jobs.ts'

export interface JobInserts {
  /** Resolves when the jobs are committed: to the ids made, or undefined where all of them are new by construction. */
  insert(jobs: NewJob[], how: EnqueueHow): Promise<Set<string> | undefined>
  idle(): Promise<void>
}

/** Batches of single enqueues under way at once. */
export const BATCHES = 2
/** Of jobs of workflows: so many workflows may be locked by open transactions of others before the rest waits too. */
const WORKFLOW_BATCHES = 4

export function createJobInserts(calls: PostgresCalls, patienceMs: number, hints: JobHints): JobInserts {
  const { pool, schema, patiently } = calls
  const batch = createEnqueueBatch(pool, schema, { inFlight: BATCHES, patienceMs }, hints)
  /** Jobs of workflows travel apart: they may have to wait for a transaction that enqueued into the same workflow. */
  const workflowBatch = createEnqueueBatch(
    pool,
    schema,
    { inFlight: WORKFLOW_BATCHES, isByWorkflow: true, patienceMs },
    hints,
  )

  const insertChunks = async (db: Queryable, chunks: NewJob[][], how: EnqueueHow) => {
    const made = how.isChecked ? new Set<string>() : undefined
    for (const chunk of chunks)
      for (const id of (await enqueueJobs(db, schema, chunk, how)).made ?? []) made?.add(id)
    return made
  }

  return {
    insert(jobs, { isChecked = false, isWhole = false }) {
      const [job] = jobs
      if (job && jobs.length === 1 && !isWhole)
        return (job.workflow === undefined ? batch : workflowBatch).add(job, isChecked)
      const chunks = [...inChunks(jobs)]
      return patiently(tries => {
        const how = { isWhole, isChecked: isChecked || tries > 1 }
        return chunks.length === 1
          ? enqueueChunks(pool, schema, chunks, how)
          : pool.transaction(own => insertChunks(own, chunks, how))
      })
    },
    async idle() {
      await batch.idle()
      await workflowBatch.idle()
    },
  }
}
