/** Owns jobs on their way into Postgres: in chunks that one statement can carry, with a trace, and with the queue that they share. */
import type { NewJob } from '../postgres/enqueue-jobs.ts'
import type { NewGroupJob } from '../postgres/groups.ts'

/** More in one insert does not make it faster (measured from 200 to 1,000: the same). */
const CHUNK_JOBS = 1000
const CHUNK_EDGES = 10_000
/** Payloads travel as one text, and a text has a longest length: of JavaScript, and of Postgres. */
const CHUNK_BYTES = 8 * 1024 * 1024

/** Chunks in the order given. */
export function* inChunks<J extends NewJob & Partial<NewGroupJob>>(
  jobs: readonly J[],
): Generator<J[], undefined> {
  let chunk: J[] = []
  let edges = 0
  let bytes = 0
  for (const job of jobs) {
    const parents = job.parents?.size ?? 0
    const isFull =
      chunk.length >= CHUNK_JOBS || edges + parents > CHUNK_EDGES || bytes + job.payload.length > CHUNK_BYTES
    if (isFull && chunk.length > 0) {
      yield chunk
      chunk = []
      edges = 0
      bytes = 0
    }
    chunk.push(job)
    edges += parents
    bytes += job.payload.length
  }
  if (chunk.length > 0) yield chunk
}

/** Undefined where they go to several. */
export const queueOf = (jobs: readonly NewJob[]): string | undefined =>
  new Set(jobs.map(job => job.queue)).size === 1 ? jobs[0]?.queue : undefined

export const withTrace = <T extends NewJob>(jobs: T[], trace: string | undefined): T[] =>
  trace === undefined ? jobs : jobs.map(job => ({ ...job, trace }))
