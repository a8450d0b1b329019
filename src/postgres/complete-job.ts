/**
 * The verb *complete*: a user's own writes and the settle of the run that made them, in one transaction. Both happen, or
 * neither, also when the reply to the commit is lost: then the job's row is waited for, and tells which it was.
 */
import type { JobId } from '../job/job-id.ts'
import type { Queryable } from '../job/queryable.ts'
import type { Pool } from './connect.ts'
import { inSchema } from './schema-name.ts'
import { settleAndClaim } from './settle-and-claim.ts'

/** `lost`: the lease is gone; `cancelled`: somebody cancelled the job. Neither has changed anything. */
export type Completion = 'completed' | 'lost' | 'cancelled'

const LOCK_TIMEOUT = '10s'
const HOLD_JOB = `
  select is_cancelled from longshore.jobs where id = $1 and worker_id = $2 and lease_token = $3 for update`
const WAS_SETTLED = 'select from longshore.finished_jobs where id = $1 and lease_token = $2'

/** `work` makes the user's writes and returns the result as JSON text, or null for none. */
export async function completeJob(
  pool: Pool,
  schema: string,
  workerId: number,
  lease: { id: JobId; leaseToken: string },
  work: (tx: Queryable) => Promise<string | null>,
): Promise<Completion> {
  const holdJob = async (tx: Queryable) => {
    await tx.query(`set local lock_timeout = '${LOCK_TIMEOUT}'`)
    return (await tx.query(inSchema(schema, HOLD_JOB), [lease.id, workerId, lease.leaseToken])).rows[0]
  }
  let hasSettled = false
  try {
    await pool.transaction(async tx => {
      const result = await work(tx)
      const held = await holdJob(tx)
      if (!held) throw new Refused('lost')
      if (held['is_cancelled']) throw new Refused('cancelled')
      await settleAndClaim(tx, schema, workerId, [{ ...lease, kind: 'succeeded', result }], 0)
      hasSettled = true
    })
    return 'completed'
  } catch (error) {
    if (error instanceof Refused) return error.completion
    if (!hasSettled) throw error
    // The commit may or may not have been done. While it is under way it holds the job.
    const isStillRunning = await pool.transaction(async tx => (await holdJob(tx)) !== undefined)
    if (isStillRunning) throw error
    const { rows } = await pool.query(inSchema(schema, WAS_SETTLED), [lease.id, lease.leaseToken])
    return rows.length > 0 ? 'completed' : 'lost'
  }
}

/** Rolls the transaction back. */
class Refused extends Error {
  constructor(readonly completion: 'lost' | 'cancelled') {
    super(completion)
  }
}
