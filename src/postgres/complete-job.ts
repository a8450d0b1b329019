/**
 * The verb *complete*: a user's own writes and the settle of the run that made them, in one transaction. Both happen, or
 * neither, also when the reply to the commit is lost: then the job's row is waited for, and tells which it was.
 */
import type { JobId } from '../job/job-id.ts'
import type { Queryable } from '../job/queryable.ts'
import type { Pool } from './connect.ts'
import { inSchema } from './schema-name.ts'
import type { WorkerKey } from './secret.ts'

/**
 * `lost`: the lease is gone; `cancelled`: the job was cancelled; `ended`: the work has ended the transaction itself, so
 * its writes cannot be tied to the job any more. None of them has settled it.
 */
export type Completion = 'completed' | 'lost' | 'cancelled' | 'ended'

export interface Completed {
  completion: Completion
  /** The group that it may have brought to its end, see `closeGroups`. */
  group?: string
}

const LOCK_TIMEOUT = '10s'
/** Gone with the transaction: another value means another transaction. */
const BEGIN_RUN = "select set_config('longshore_run.lease', $1, true)"
const COMPLETE = 'select longshore.complete($1, $2, $3, $4, $5) as answer'
const HOLD_RUN = 'select longshore.hold_run($1, $2, $3, $4) as answer'

/** `work` makes the user's writes and returns the result as JSON text, or null for none. */
export async function completeJob(
  pool: Pool,
  schema: string,
  worker: WorkerKey,
  lease: { id: JobId; leaseToken: string },
  work: (tx: Queryable) => Promise<string | null>,
): Promise<Completed> {
  let group: string | undefined
  let hasSettled = false
  const use = { isOver: false }
  try {
    await pool.transaction(async tx => {
      try {
        await tx.query(BEGIN_RUN, [lease.leaseToken])
        const result = await work(lent(tx, use))
        const { rows } = await tx.query(inSchema(schema, COMPLETE), [
          worker.id,
          lease.id,
          lease.leaseToken,
          result,
          worker.secret,
        ])
        const [answer, ofGroup] = String(rows[0]?.['answer']).split(' ')
        if (answer !== 'completed') throw new Refused(answer as Completion)
        group = ofGroup
        hasSettled = true
      } finally {
        // Before the commit is sent: a statement behind it would be part of no transaction.
        use.isOver = true
      }
    })
    return { completion: 'completed', ...(group ? { group } : {}) }
  } catch (error) {
    if (error instanceof Refused) return { completion: error.completion }
    if (!hasSettled) throw error
    // The commit may or may not have been done. While it is under way it holds the job.
    const answer = await pool.transaction(async tx => {
      await tx.query(`set local lock_timeout = '${LOCK_TIMEOUT}'`)
      const { rows } = await tx.query(inSchema(schema, HOLD_RUN), [
        worker.id,
        lease.id,
        lease.leaseToken,
        worker.secret,
      ])
      return rows[0]?.['answer']
    })
    if (answer === 'held') throw error
    return { completion: answer === 'settled' ? 'completed' : 'lost' }
  }
}

/** The client, usable only while the transaction lasts. A later statement would be in another run's transaction, or in none. */
function lent<Client extends Queryable>(client: Client, use: { isOver: boolean }): Client {
  return new Proxy(client, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name)
      if (typeof value !== 'function') return value
      if (!use.isOver || (name !== 'query' && name !== 'queryTexts')) return value.bind(target)
      return () =>
        Promise.reject(new Error('the transaction of ctx.complete has ended: wait for each statement'))
    },
  })
}

/** Rolls the transaction back. */
class Refused extends Error {
  constructor(readonly completion: Completion) {
    super(completion)
  }
}
