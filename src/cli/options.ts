/** Owns the options that most commands share. */
import { type Command, Option } from 'commander'
import { LongshoreError } from '../job/errors.ts'
import { type JobId, toJobId } from '../job/job-id.ts'
import { DEFAULT_SCHEMA } from '../postgres/schema-name.ts'

export interface DatabaseOptions {
  databaseUrl?: string
  schema: string
}

export function addDatabaseOptions(command: Command): Command {
  return command
    .addOption(
      new Option('--database-url <url>', 'where Postgres is: postgres://user:password@host:port/name').env(
        'DATABASE_URL',
      ),
    )
    .addOption(
      new Option('--schema <name>', 'schema of the installation')
        .env('LONGSHORE_SCHEMA')
        .default(DEFAULT_SCHEMA),
    )
}

export function addRedisOption(command: Command): Command {
  return command.addOption(
    new Option(
      '--redis-url <url>',
      'where Redis is: redis://host:port, several of one cluster separated by commas; without it jobs go straight through Postgres',
    ).env('REDIS_URL'),
  )
}

export function requireDatabaseUrl(options: DatabaseOptions): string {
  if (options.databaseUrl) return options.databaseUrl
  throw new LongshoreError(
    'CONFIG_INVALID',
    'no database given: pass --database-url postgres://user@host/name or set DATABASE_URL',
  )
}

/** An id that was given as an argument. */
export function toId(what: 'job' | 'group', text: string): JobId {
  try {
    return toJobId(text)
  } catch {
    throw new LongshoreError(
      'CONFIG_INVALID',
      `a ${what} id is a UUID like 0198c0de-0000-7000-8000-000000000000; got ${JSON.stringify(text)}`,
    )
  }
}

export const jobNotFound = (id: string, schema: string): LongshoreError =>
  new LongshoreError(
    'JOB_NOT_FOUND',
    `there is no job ${id} in schema "${schema}": its transaction may not have been committed, or its history has been dropped`,
  )

export function toLimit(text: string): number {
  const limit = Number(text)
  if (Number.isInteger(limit) && limit >= 1 && limit <= 10_000) return limit
  throw new LongshoreError('CONFIG_INVALID', `--limit must be a whole number from 1 to 10000; got ${text}`)
}
