/** Owns the options that most commands share. */
import { type Command, Option } from 'commander'
import { LongshoreError } from '../job/errors.ts'
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
