/**
 * The duty of due jobs: moves them from scheduled to ready, exact to a few milliseconds. The database says how long
 * the next one has to wait; no clock of this process is read. What is enqueued with a shorter delay than the regular
 * look rings (`lookNow`).
 */
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from '../postgres/schema-name.ts'
import type { Holder } from '../postgres/secret.ts'
import type { Duties } from './duties.ts'

/** `enqueue_jobs` and `settle` ring for whatever is due within 300 ms: this look sees the rest in time. */
const LOOK_MS = 250
const BATCH = 1000
const LOCKED_MS = 10

export interface DueJobs {
  start(): void
  stop(): void
  lookNow(): void
}

export function createDueJobs(options: {
  db: Queryable
  schema: string
  holder: Holder
  attempt: Duties['attempt']
  onError: (error: unknown) => void
}): DueJobs {
  let isOn = false
  let isLooking = false
  let lookAgain = false
  let timer: NodeJS.Timeout | undefined

  const promote = async (): Promise<number> => {
    const { rows } = await options.db.query(
      inSchema(
        options.schema,
        'select promoted, next_due_ms::numeric as next_due_ms from longshore.promote_due($1, $2, $3)',
      ),
      [BATCH, options.holder.name, options.holder.secret],
    )
    const { promoted, next_due_ms: given } = rows[0] as { promoted: number; next_due_ms: string | null }
    if (promoted === BATCH) return 0
    // A due job that was not moved is locked by another transaction: do not spin on it.
    const leastMs = promoted === 0 ? LOCKED_MS : 0
    if (given === null) return LOOK_MS
    const next = Number(given)
    return Math.min(LOOK_MS, next > 0 ? Math.ceil(next) : leastMs)
  }

  const look = async () => {
    if (isLooking) {
      lookAgain = true
      return
    }
    isLooking = true
    clearTimeout(timer)
    let waitMs = LOOK_MS
    try {
      await options.attempt('due jobs', async () => {
        do {
          lookAgain = false
          waitMs = await promote()
        } while (isOn && (lookAgain || waitMs === 0))
      })
    } catch (error) {
      options.onError(error)
    }
    isLooking = false
    if (isOn) timer = setTimeout(look, waitMs)
  }

  return {
    start() {
      if (isOn) return
      isOn = true
      look()
    },
    stop() {
      isOn = false
      clearTimeout(timer)
    },
    lookNow() {
      if (isOn) look()
    },
  }
}
