/** Owns how a verb of a producer reaches Postgres: in the caller's transaction, or on the producer's own pool with retries. */
import type { Queryable, Transaction } from '../job/queryable.ts'
import type { Pool } from '../postgres/connect.ts'
import type { patient } from '../postgres/unavailable.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Readiness } from './readiness.ts'
import { joinTransaction } from './transaction.ts'

export interface PostgresCalls {
  readonly pool: Pool
  readonly schema: string
  readonly patiently: ReturnType<typeof patient>
  readonly whenReady: Readiness['whenReady']
  /**
   * In a transaction of the caller: the statement is sent before anything is waited for, except for `prepared`. Neither the check of
   * the database nor the lanes come first: a lane that is missing is made within. What the check finds explains why a statement failed.
   */
  inTransaction<P, T>(
    tx: Transaction,
    prepared: P | Promise<P>,
    send: (db: Queryable, prepared: P) => Promise<T>,
  ): Promise<T>
  /** For what changes nothing when it is done again. Within a caller's transaction nothing is retried: it has aborted. */
  once<T>(tx: Transaction | undefined, call: (db: Queryable) => Promise<T>): Promise<T>
}

export function createPostgresCalls(
  pool: Pool,
  schema: string,
  patiently: ReturnType<typeof patient>,
  readiness: Readiness,
  logger: Logger,
): PostgresCalls {
  const { whenReady } = readiness

  /** Not waited for: it might itself wait for the caller's transaction. */
  const getReady = async () => {
    try {
      await whenReady()
    } catch (error) {
      if (!readiness.isClosed)
        logger.warn({ err: error }, 'the producer could not get ready; it tries again at its next call')
    }
  }

  const inTransaction: PostgresCalls['inTransaction'] = async (tx, prepared, send) => {
    const isLater = prepared instanceof Promise
    if (isLater) prepared.catch(() => undefined)
    const checking = readiness.whenChecked()
    checking.then(getReady, () => undefined)
    const db = joinTransaction(tx, schema, isLater)
    const sent = isLater ? prepared.then(value => send(db, value)) : send(db, prepared)
    const [, check] = await Promise.allSettled([sent, checking])
    if (check.status === 'rejected' && !readiness.isClosed) throw check.reason
    return sent
  }

  return {
    pool,
    schema,
    patiently,
    whenReady,
    inTransaction,
    async once(tx, call) {
      if (tx !== undefined) return inTransaction(tx, undefined, call)
      await whenReady()
      return patiently(() => call(pool))
    },
  }
}
