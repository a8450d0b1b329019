/** Rounds of the leader that forget what is not used, step by step, and time that passes for what was marked. */
import { setTimeout as pause } from 'node:timers/promises'
import type { TestDatabase } from './database.ts'

interface Asked {
  query(text: string, values?: unknown[]): Promise<{ rows: Record<string, unknown>[] }>
}

export interface Forgotten {
  /** Where it stands afterwards: `resting`, or what it waits in. */
  step: string
  marked: number
  cleared: number
  deleted: number
}

/** Goes on with a round until it has ended, or waits for other transactions. `begins`: the time of the next one has come. */
export async function forgetOn(
  db: Asked,
  options: { begins?: boolean; page?: number } = {},
): Promise<Forgotten> {
  const { begins = true, page = 1000 } = options
  if (begins) await db.query("update longshore.forgetting set next_at = now() where step = 'resting'")
  const all: Forgotten = { step: '', marked: 0, cleared: 0, deleted: 0 }
  for (;;) {
    const { rows } = await db.query('select * from longshore.forget_lanes(p_page => $1)', [page])
    const piece = rows[0] as unknown as Forgotten & { is_idle: boolean }
    all.step = piece.step
    all.marked += piece.marked
    all.cleared += piece.cleared
    all.deleted += piece.deleted
    if (piece.step === 'resting') return all
    if (!piece.is_idle) continue
    if (piece.step !== 'waiting' || (await isHeldUp(db))) return all
    // A round waits for the transactions of all databases of the server: those of other tests end soon.
    await pause(5)
  }
}

/** A transaction of this database writes, and is not one of autovacuum, which ends soon. */
async function isHeldUp(db: Asked): Promise<boolean> {
  const { rows } = await db.query(
    `select from pg_stat_activity
     where datname = current_database() and pid <> pg_backend_pid() and backend_xid is not null and backend_type = 'client backend'`,
  )
  return rows.length > 0
}

export const asAsked = (database: Pick<TestDatabase, 'rows'>): Asked => ({
  query: async (text, values) => ({ rows: await database.rows(text, values) }),
})

/** Days have passed since lanes were marked. */
export const passDays = (database: TestDatabase, days: number) =>
  database.rows(
    "update longshore.lanes set unused_since = unused_since - $1 * interval '1 day' where unused_since is not null",
    [days],
  )

/** No round is under way, and the settings are those of a new deployment. */
export async function beginAnew(database: TestDatabase): Promise<void> {
  await database.rows(
    "update longshore.forgetting set step = 'resting', next_at = now() + interval '1 day', lane = 0, wait_for = null, void_from = null",
  )
  await database.rows('update longshore.settings set retention_days = 7, max_queues = 1000')
  await database.rows("update longshore.settings set history_until = '2000-01-01'")
}
