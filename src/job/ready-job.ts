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
  /** The lane of the same kind without a key. */
  kind: number
  task: string
  tag: string
  constraintTag: string
  /** Jobs of the kind without a key are under no limit. */
  isPlain: boolean
  hasLimits: boolean
  /** The limit of its task and the slots of it that are free, and the same of its key. */
  limit: number | null
  free: string | null
  keyLimit: number | null
  keyFree: string | null
}
