/**
 * Where a worker's jobs come from: the seam between the two ways. `direct-source.ts` claims from Postgres; `redis-source.ts` takes ids in Redis and claims
 * those; `switched-source.ts` uses the one that is open. Each job is claimed and settled in Postgres, whichever way its id came.
 * `test/flow/job-source.test.ts` holds for both.
 */
import type { Exchange, Lease, Outcome } from '../postgres/settle-and-claim.ts'

export type Way = 'direct' | 'redis'

/** What the worker needs to know of an exchange. */
export type Answer = Pick<Exchange, 'claimed' | 'busy' | 'lost' | 'wait'>

/** A source calls `look`, which it is given, when there may be jobs. */
export interface JobSource {
  readonly way: Way
  /** To look for jobs beside settling costs nothing: it is done even when none are expected. */
  readonly looksForFree: boolean
  /** Settles `outcomes` and claims up to `limit` jobs. After a rejection it is unclear what was done: settling again is safe. */
  exchange(outcomes: readonly Outcome[], limit: number): Promise<Answer>
  /** So many jobs were claimed. */
  onClaimed(jobs: number): void
  /** No call is under way and a permit is free: from now on the source calls `look` when there may be jobs. */
  onIdle(): void
  /** The worker takes no more for now: others should be woken. */
  onFull(): void
  /** A run has ended in a transaction of its own, outside of an exchange. */
  onCompleted(lease: Lease): void
  /** The worker takes nothing and is not woken until told otherwise. Resolves when that holds. No exchange may be under way that claims. */
  rest(isToRest: boolean): Promise<void>
  /** Postgres has other properties of the worker. Resolves when claims go by them. */
  onPropertiesChanged(): Promise<void>
  /** Rejects when what it needs beside Postgres cannot be used. */
  probe(): Promise<void>
  /** It calls `look` no more, and others are offered what it would have taken. Outcomes can still be settled. */
  close(): Promise<void>
}
