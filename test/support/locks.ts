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
