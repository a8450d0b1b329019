/**
 * Owns submissions of small groups outside a transaction: those made at the same time share a call and a commit. A call that
 * fails is taken apart: each of its groups is then submitted alone, as one that an earlier try may have committed.
 */
import type { Pool } from '../postgres/connect.ts'
import { type AddedTo, addToGroups, type NewGroupJob } from '../postgres/groups.ts'
import { naturalBatch } from '../runtime/natural-batch.ts'

export interface GroupBatch {
  /** Resolves when the group is committed: to whether it is there because of this call. */
  add(group: AddedTo, jobs: readonly NewGroupJob[]): Promise<boolean>
  idle(): Promise<void>
}

interface Entry {
  group: AddedTo
  jobs: readonly NewGroupJob[]
  answer: (isAdded: boolean | Promise<boolean>) => void
}

const MOST_GROUPS = 50
const MOST_JOBS = 50
const MOST_EDGES = 500
const MOST_BYTES = 64 * 1024

/** So small that it does not delay others, and in no workflow, whose lock it might have to wait for. */
export function isSmall(jobs: readonly NewGroupJob[]): boolean {
  if (jobs.length > MOST_JOBS) return false
  let edges = 0
  let bytes = 0
  for (const job of jobs) {
    if (job.workflow !== undefined) return false
    edges += job.parents.size
    bytes += job.payload.length
  }
  return edges <= MOST_EDGES && bytes <= MOST_BYTES
}

export function createGroupBatch(
  pool: Pool,
  schema: string,
  inFlight: number,
  submitAlone: (group: AddedTo, jobs: readonly NewGroupJob[], isRetried: boolean) => Promise<boolean>,
): GroupBatch {
  const sendAlone = async (entries: readonly Entry[], isRetried: boolean) => {
    const answers = entries.map(({ group, jobs, answer }) => {
      const submitted = submitAlone(group, jobs, isRetried)
      answer(submitted)
      return submitted
    })
    await Promise.allSettled(answers)
  }

  const batch = naturalBatch<Entry>({
    inFlight,
    maxItems: MOST_GROUPS,
    async send(entries) {
      if (entries.length === 1) return sendAlone(entries, false)
      try {
        await addToGroups(pool, schema, entries)
      } catch {
        return sendAlone(entries, true) // each is told what is wrong with it
      }
      for (const { answer } of entries) answer(true)
    },
  })

  return {
    add: (group, jobs) => new Promise(answer => batch.add({ group, jobs, answer })),
    idle: () => batch.idle(),
  }
}
