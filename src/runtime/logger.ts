/** Owns logging: pino, one line per event, quiet by default, never a payload or a credential. */
import { type Logger, pino } from 'pino'

export type { Logger }

/** Level `warn` unless `LONGSHORE_LOG_LEVEL` says otherwise; to standard error, so that output stays output. */
export function createLogger(name: string): Logger {
  return pino(
    {
      name,
      level: process.env['LONGSHORE_LOG_LEVEL'] ?? 'warn',
      redact: ['payload', '*.payload', 'password', '*.password', 'connectionString', '*.connectionString'],
    },
    pino.destination(2),
  )
}
