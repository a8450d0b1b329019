/**
 * Finds sessions that block others with an advisory lock of longshore's: any user that may connect can take one, see
 * `locks_held.sql`. Longshore holds them for moments, so only sessions that hold one for longer are reported.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from './schema-name.ts'
import { asMs, toDate } from './times.ts'

interface HeldLock {
  lock: 'worker' | 'limits' | 'lanes'
  worker: number | null
  stops: string
  pid: number
  /** Another one with each transaction of that session. */
  transaction: string
  login: string | null
  application: string | null
  /** Milliseconds since 1970. Null: the owner of the schema is not told. */
  since: string | null
}

/** The same session in the same transaction, or idle. */
const HELD_MS = 1000
/** Or the same session at so many looks, in whatever transaction: a session of longshore is now and then without the lock. */
const MOST_LOOKS = 15
const LOOK_MS = 200

/**
 * Each call returns a sentence for each session that holds a lock now. It takes one statement if there is none, else a
 * second. `concerns`: which workers' locks count; those of the whole installation always do.
 */
export function createLockWatch(
  db: Queryable,
  schema: string,
  concerns: (worker: number) => boolean = () => true,
): () => Promise<string[]> {
  const known = new Map<string, { transaction: string; at: number; looks: number }>()

  const look = async () => {
    const { rows } = await db.query(
      inSchema(
        schema,
        `select lock, worker_id as worker, stops, pid, transaction, login, application, ${asMs('since')} as since
         from longshore.locks_held()`,
      ),
    )
    const now = performance.now()
    const seen = new Set<string>()
    const held: HeldLock[] = []
    let isUnclear = false
    for (const lock of rows as unknown as HeldLock[]) {
      if (lock.worker !== null && !concerns(lock.worker)) continue
      const key = `${lock.lock} ${lock.worker} ${lock.pid}`
      seen.add(key)
      const was = known.get(key)
      const at = was?.transaction === lock.transaction ? was.at : now
      const looks = (was?.looks ?? 0) + 1
      known.set(key, { transaction: lock.transaction, at, looks })
      if (now - at >= HELD_MS || looks >= MOST_LOOKS) held.push(lock)
      else isUnclear = true
    }
    for (const key of known.keys()) if (!seen.has(key)) known.delete(key)
    return { held, isUnclear }
  }

  return async () => {
    const until = performance.now() + HELD_MS + LOOK_MS
    for (;;) {
      const { held, isUnclear } = await look()
      if (!isUnclear || performance.now() > until) return held.map(inWords)
      await pause(LOOK_MS)
    }
  }
}

function inWords({ lock, worker, stops, pid, login, application, since }: HeldLock): string {
  const who = [login && `user ${login}`, application].filter(Boolean).join(', ')
  const from = since === null ? 'for a second at least' : `since ${toDate(since).toISOString()}`
  const whose = lock === 'worker' ? ` of worker ${worker}` : ''
  return (
    `connection ${pid} (${who || 'no name'}) has held a lock of longshore's ${from}, which stops ${stops}${whose}: ` +
    `end it with select pg_terminate_backend(${pid})`
  )
}
