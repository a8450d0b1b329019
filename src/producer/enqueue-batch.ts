/**
 * Owns single enqueues outside a transaction: those made at the same time share an insert and a commit. A failure
 * that may have committed is tried again as a checked insert, which leaves known jobs alone; a batch that Postgres
 * refuses is taken apart, so that one bad job does not fail its neighbours.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { Pool } from '../postgres/connect.ts'
import { enqueueJobs, type NewJob } from '../postgres/enqueue-jobs.ts'
import { isTransientError } from '../postgres/transient-error.ts'
import { toUnavailable } from '../postgres/unavailable.ts'
import { naturalBatch } from '../runtime/natural-batch.ts'
import { pauseMs } from '../runtime/retry.ts'
import type { JobHints } from './hint-jobs.ts'

export interface EnqueueBatch {
  /** Resolves when the job is committed: to the ids made, or undefined where it is new by construction. */
  add(job: NewJob, isChecked: boolean): Promise<Set<string> | undefined>
  idle(): Promise<void>
}

interface Entry {
  job: NewJob
  isChecked: boolean
  /** By `performance.now()`: from then on it is not tried again. */
  until: number
  resolve: (made: Set<string> | undefined) => void
  reject: (error: unknown) => void
}

const MAX_ITEMS = 500
export const PAUSES = { firstMs: 50, maxMs: 1000 }

export interface BatchOptions {
  /** How many batches are under way at once. */
  inFlight: number
  /** How long each is tried again while Postgres is away. */
  patienceMs: number
  /**
   * Jobs of one workflow are in one batch at a time, so they are numbered in the order in which they were added. A
   * transaction that has locked a workflow delays the jobs that were sent along with its, and no others.
   */
  isByWorkflow?: boolean
}

export function createEnqueueBatch(
  pool: Pool,
  schema: string,
  { inFlight, patienceMs, isByWorkflow = false }: BatchOptions,
  hints: Pick<JobHints, 'isPossible' | 'give'>,
): EnqueueBatch {
  const insert = (entries: Entry[], isChecked: boolean) =>
    enqueueJobs(
      pool,
      schema,
      entries.map(entry => entry.job),
      { isChecked, isHinted: hints.isPossible(entries.length) },
    )

  const sendTogether = async (given: Entry[], isChecked: boolean): Promise<void> => {
    let entries = given
    for (let tries = 1; entries.length > 0; tries++) {
      try {
        const { made, ready } = await insert(entries, isChecked || tries > 1)
        hints.give(ready)
        for (const entry of entries) entry.resolve(made)
        return
      } catch (error) {
        if (!isTransientError(error)) return refuse(entries, error)
        const now = performance.now()
        for (const entry of entries) if (entry.until <= now) entry.reject(toUnavailable(error))
        entries = entries.filter(entry => entry.until > now)
        const leftMs = Math.min(...entries.map(entry => entry.until)) - now
        if (entries.length > 0) await pause(Math.min(leftMs, pauseMs(tries, PAUSES)))
      }
    }
  }

  const refuse = async (entries: Entry[], error: unknown): Promise<void> => {
    if (entries.length === 1) return entries[0]?.reject(toUnavailable(error))
    // Checked: an earlier try of the whole batch may have been committed after all.
    for (const entry of entries) await sendTogether([entry], true)
  }

  // The checked insert costs more, so the few that need it travel apart; but jobs of workflows keep their order.
  const batch = naturalBatch<Entry>({
    inFlight,
    maxItems: MAX_ITEMS,
    ...(isByWorkflow ? { keyOf: (entry: Entry) => entry.job.workflow } : {}),
    send: async entries => {
      const checked = entries.filter(entry => entry.isChecked)
      if (isByWorkflow) return sendTogether(entries, checked.length > 0)
      const fresh = checked.length === 0 ? entries : entries.filter(entry => !entry.isChecked)
      await sendTogether(fresh, false)
      await sendTogether(checked, true)
    },
  })

  return {
    add: (job, isChecked) =>
      new Promise((resolve, reject) =>
        batch.add({ job, isChecked, until: performance.now() + patienceMs, resolve, reject }),
      ),
    idle: () => batch.idle(),
  }
}
