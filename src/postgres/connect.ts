/** Owns connections to Postgres: the connection string, the pool and its settings. */
import pg from 'pg'
import { LongshoreError } from '../job/errors.ts'

export function connectionConfig(url: string): pg.ClientConfig {
  if (!/^postgres(ql)?:\/\//.test(url)) {
    throw new LongshoreError(
      'CONFIG_INVALID',
      'the Postgres connection string must start with postgres:// or postgresql://; set DATABASE_URL or pass `postgres`',
    )
  }
  return { connectionString: url, application_name: 'longshore', keepAlive: true }
}

/** A pool that never ends the process by an unhandled 'error': a broken idle connection is simply replaced. */
export function openPool(url: string, max: number, onError: (error: Error) => void): pg.Pool {
  const pool = new pg.Pool({ ...connectionConfig(url), max, idleTimeoutMillis: 30_000 })
  pool.on('error', onError)
  return pool
}
