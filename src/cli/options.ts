/** Owns the options that most commands share. */
import type { Command } from 'commander'
import type { Duration } from '../job/duration.ts'
import { LongshoreError } from '../job/errors.ts'
import { type JobId, toJobId } from '../job/job-id.ts'
import { quoted, shown } from '../job/shown.ts'
import { addConfigFlag, addFlags, fillShared, NO_DATABASE } from './settings.ts'

export interface DatabaseOptions {
  databaseUrl?: string
  schema: string
}

export function addDatabaseOptions(command: Command): Command {
  addFlags(command, 'shared', key => key === 'databaseUrl' || key === 'schema')
  return addConfigFlag(command).hook('preAction', fillShared)
}

export function addRedisOption(command: Command): Command {
  addFlags(command, 'shared', key => key === 'redisUrl')
  return command
}

export function requireDatabaseUrl(options: DatabaseOptions): string {
  if (options.databaseUrl) return options.databaseUrl
  throw new LongshoreError('CONFIG_INVALID', NO_DATABASE)
}

/** An id that was given as an argument. */
export function toId(what: 'job' | 'group', text: string): JobId {
  try {
    return toJobId(text)
  } catch {
    throw new LongshoreError(
      'CONFIG_INVALID',
      `a ${what} id is a UUID like 0198c0de-0000-7000-8000-000000000000, as the producer returned it; got ${quoted(text)}`,
    )
  }
}

export const jobNotFound = (id: string, schema: string): LongshoreError =>
  new LongshoreError(
    'JOB_NOT_FOUND',
    `there is no job ${id} in schema "${schema}": its transaction may not have been committed, its history has been dropped, or it is of another service`,
  )

/** Milliseconds, or a number with a unit; whether it may be so long is checked where it is used. */
export const toDuration = (text: string): Duration => (/^\d+$/.test(text) ? Number(text) : (text as Duration))

export function toLimit(text: string): number {
  const limit = Number(text)
  if (Number.isInteger(limit) && limit >= 1 && limit <= 10_000) return limit
  throw new LongshoreError(
    'CONFIG_INVALID',
    `--limit must be a whole number from 1 to 10000; got ${shown(text)}`,
  )
}
