/** Owns what becomes of outcomes whose call has failed, and how many may travel in one call. */
import { messageOf, storedError } from '../job/stored-error.ts'
import type { Outcome } from '../postgres/settle-and-claim.ts'
import { isDataError, isTransientError, tookTooLong } from '../postgres/transient-error.ts'

/**
 * `again`: Postgres could not be reached, or refused a lone outcome: try these after a pause. `one by one`: Postgres refused a call with several:
 * one bad outcome must not delay the others.
 */
export type Recovery =
  | { readonly how: 'again'; readonly outcomes: readonly Outcome[]; readonly isOutage: boolean }
  | { readonly how: 'one by one' }

export function recoveryFrom(error: unknown, sent: readonly Outcome[]): Recovery {
  if (isTransientError(error)) return { how: 'again', outcomes: sent, isOutage: true }
  if (sent.length > 1) return { how: 'one by one' }
  return { how: 'again', outcomes: sent.map(outcome => replaceRefused(outcome, error)), isOutage: false }
}

/** What Postgres will not take as it is ends as a failure that says so. */
function replaceRefused(outcome: Outcome, error: unknown): Outcome {
  if (!isDataError(error)) return outcome
  const { id, leaseToken } = outcome
  switch (outcome.kind) {
    case 'succeeded': {
      if (outcome.result === null) return outcome
      const message = `the handler succeeded, but Postgres refused its result: ${messageOf(error)}`
      return { id, leaseToken, kind: 'failed', error: storedError('RESULT_REFUSED', message) }
    }
    case 'failed':
    case 'retry':
      return { ...outcome, error: storedError(outcome.error.code, 'the error itself could not be stored') }
    case 'released':
      return outcome
  }
}

const MOST_OUTCOMES = 1000

/** The same number again would take Postgres as long again, for ever: half as many after a call that took too long, slowly more after others. */
export class OutcomeBound {
  most = MOST_OUTCOMES

  failed(error: unknown, sent: number): void {
    if (sent > 1 && tookTooLong(error)) this.most = Math.ceil(sent / 2)
  }

  settled(sent: number): void {
    if (sent === this.most) this.most = Math.min(MOST_OUTCOMES, Math.ceil(1.1 * this.most))
  }
}
