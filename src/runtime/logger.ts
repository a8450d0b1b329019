/** Owns logging: pino, one line per event, quiet by default, never a payload or a credential. */
import { type Logger, pino } from 'pino'
import { LongshoreError } from '../job/errors.ts'
import { describeThrown } from '../job/stored-error.ts'
import { visibleJson } from './visible.ts'

export type { Logger }

/** Level `warn` unless `LONGSHORE_LOG_LEVEL` says otherwise; to standard error, so that output stays output. */
export function createLogger(
  name: string,
  level: string = process.env['LONGSHORE_LOG_LEVEL'] || 'warn',
): Logger {
  const stderr = pino.destination(2)
  return pino(
    { name, level, serializers: { err: describeError } },
    { write: line => stderr.write(visibleJson(line)) },
  )
}

/** A logger of the user's, made safe. */
export function withSafeErrors(logger: Logger): Logger {
  if (typeof logger?.child !== 'function') {
    throw new LongshoreError(
      'CONFIG_INVALID',
      'logger must be a pino logger, such as pino({ level: "warn" })',
    )
  }
  return logger.child({}, { serializers: { err: describeError } })
}

/** Errors of Postgres carry whole rows in `detail` and `where`: only what never holds user data is kept, of causes as well. */
function describeError(error: unknown): unknown {
  const { name, ...rest } = describeThrown(error)
  return { type: name, ...rest }
}
