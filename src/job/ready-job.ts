/** What both stores say of a ready job and of its lane, in the same words. */
import type { JobId } from './job-id.ts'

/** A ready job and its true place. */
export interface ReadyJob {
  id: JobId
  lane: number
  /** The order as one number, see `score.sql`; a text, since it is handed on and never reckoned with. */
  score: string
  leaseToken: string
}

export interface LaneFacts {
  lane: number
  queue: string
  /** The same lane without a concurrency key: itself where it has none. */
  kind: number
  task: string
  tag: string
  constraintTag: string
  /** Its task has no limit of its own. */
  isPlain: boolean
  hasLimits: boolean
  /** The limit of its task and the slots of it that are free, and the same of its key. */
  limit: number | null
  free: string | null
  keyLimit: number | null
  keyFree: string | null
}
