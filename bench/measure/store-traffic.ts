/** Owns how much the stores are asked: transactions of Postgres, heartbeats among them, and commands of Redis. */
import type { Setting } from './setting.ts'

export interface Traffic {
  transactions: number
  /** Beats of longshore's workers: each updates its row. */
  beats: number
  commands: number
}

export async function readTraffic({ database, redis }: Setting): Promise<Traffic> {
  const [row] = await database.query(`
    select (select xact_commit + xact_rollback from pg_stat_database where datname = current_database())::int
        as transactions,
      coalesce((select n_tup_upd from pg_stat_user_tables where schemaname = 'longshore' and relname = 'workers'), 0)::int
        as beats`)
  const commands = /^total_commands_processed:(\d+)/m.exec((await redis?.client.info('stats')) ?? '')?.[1]
  return {
    transactions: row?.['transactions'] as number,
    beats: row?.['beats'] as number,
    commands: Number(commands ?? 0),
  }
}
