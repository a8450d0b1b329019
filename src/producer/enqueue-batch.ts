/**
 * Owns single enqueues outside a transaction: those made at the same time share an insert and a commit. A failure
 * that may have committed is tried again as a checked insert, which leaves known jobs alone; a batch that Postgres
 * refuses is taken apart, so that one bad job does not fail its neighbours.
 */
import type { Pool } from '../postgres/connect.ts'
import { enqueueJobs, type MadeReady, type NewJob } from '../postgres/enqueue-jobs.ts'
import { isTransientError } from '../postgres/transient-error.ts'
import { naturalBatch } from '../runtime/natural-batch.ts'
import { withRetry } from '../runtime/retry.ts'

export interface EnqueueBatch {
  /** Resolves when the job is committed: to the ids made, or undefined where it is new by construction. */
  add(job: NewJob, isChecked: boolean): Promise<Set<string> | undefined>
  idle(): Promise<void>
}

interface Entry {
  job: NewJob
  isChecked: boolean
  resolve: (made: Set<string> | undefined) => void
  reject: (error: unknown) => void
}

const MAX_ITEMS = 500
const RETRY = { firstMs: 50, maxMs: 1000, maxTries: 8, isTransient: isTransientError }

export interface BatchOptions {
  /** How many batches are under way at once. */
  inFlight: number
  /**
   * Jobs of one workflow are in one batch at a time, so they are numbered in the order in which they were added. Whoever holds
   * a workflow holds up the jobs that were sent along with its, and no others.
   */
  isByWorkflow?: boolean
}

export function createEnqueueBatch(
  pool: Pool,
  schema: string,
  { inFlight, isByWorkflow = false }: BatchOptions,
  hint: { isPossible(jobs: number): boolean; give(jobs: MadeReady[]): void },
): EnqueueBatch {
  const insert = (entries: Entry[], isChecked: boolean) => {
    const isHinted = hint.isPossible(entries.length)
    return withRetry(
      tries =>
        enqueueJobs(
          pool,
          schema,
          entries.map(entry => entry.job),
          isChecked || tries > 1,
          isHinted,
        ),
      RETRY,
    )
  }

  const sendAlike = async (entries: Entry[], isChecked: boolean): Promise<void> => {
    if (entries.length === 0) return
    try {
      const { made, ready } = await insert(entries, isChecked)
      hint.give(ready)
      for (const entry of entries) entry.resolve(made)
    } catch (error) {
      if (entries.length === 1 || isTransientError(error)) {
        for (const entry of entries) entry.reject(error)
        return
      }
      // Checked: an earlier try of the whole batch may have been committed after all.
      for (const entry of entries) await sendAlike([entry], true)
    }
  }

  // The checked insert costs more, so the few that need it travel apart; but jobs of workflows keep their order.
  const batch = naturalBatch<Entry>({
    inFlight,
    maxItems: MAX_ITEMS,
    ...(isByWorkflow ? { keyOf: (entry: Entry) => entry.job.workflow } : {}),
    send: async entries => {
      const checked = entries.filter(entry => entry.isChecked)
      if (isByWorkflow) return sendAlike(entries, checked.length > 0)
      const fresh = checked.length === 0 ? entries : entries.filter(entry => !entry.isChecked)
      await sendAlike(fresh, false)
      await sendAlike(checked, true)
    },
  })

  return {
    add: (job, isChecked) => new Promise((resolve, reject) => batch.add({ job, isChecked, resolve, reject })),
    idle: () => batch.idle(),
  }
}
