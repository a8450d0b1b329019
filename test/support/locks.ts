/** Barriers made of locks: wait until another connection waits. */
import type { TestClient, TestDatabase } from './database.ts'
import { eventually } from './signals.ts'

/** Resolves when the statement that `client` runs is waiting for somebody's lock. */
export function waitsForLock(database: TestDatabase, client: TestClient): Promise<void> {
  return eventually('the other transaction waits for a lock', async () => {
    const [row] = await database.rows<{ waits: boolean }>(
      "select coalesce(wait_event_type = 'Lock', false) as waits from pg_stat_activity where pid = $1",
      [client.backendPid],
    )
    return row?.waits ?? false
  })
}

const AT_BARRIER =
  "datname = current_database() and wait_event = 'advisory' and query like $1 and pid <> pg_backend_pid()"

/** Resolves when so many statements with this text, or more, stand at a barrier, see `pauseAt`. */
export function standsAtBarrier(database: TestDatabase, query: string, count = 1): Promise<void> {
  return eventually(`${count} stand at the barrier: ${query}`, async () => {
    const rows = await database.rows(`select from pg_stat_activity where ${AT_BARRIER}`, [`%${query}%`])
    return rows.length >= count
  })
}

/** A statement goes on after the death of who sent it: those that stand at a barrier are ended here. */
export function endAtBarrier(database: TestDatabase, query: string): Promise<void> {
  return eventually(`nobody stands at the barrier any more: ${query}`, async () => {
    const rows = await database.rows(
      `select pg_terminate_backend(pid) from pg_stat_activity where ${AT_BARRIER}`,
      [`%${query}%`],
    )
    return rows.length === 0
  })
}
