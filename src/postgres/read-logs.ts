/** The verb *read logs*: the lines of a job in the order of its runs, and how far it is. */
import type { JobId } from '../job/job-id.ts'
import type { LogLevel, LogLine, Progress } from '../job/job-log.ts'
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from './schema-name.ts'
import { asMs, toDate } from './times.ts'

/** A line's place: the run, by its lease token, and the number within it. */
export interface LinePlace {
  leaseToken: string
  seq: number
}

export interface PlacedLine extends LinePlace {
  line: LogLine
}

const COLUMNS = `lease_token::text as lease_token, seq, attempt, ${asMs('at')} as at, level, message, data`

/**
 * The first lines behind a place. `seen`: the last places that were seen of single runs; what came up to those is left out, since a run
 * may log after a later one has begun.
 */
export async function readLogs(
  db: Queryable,
  schema: string,
  id: JobId,
  after: LinePlace,
  limit: number,
  seen: readonly LinePlace[] = [],
): Promise<PlacedLine[]> {
  const { rows } = await db.query(
    inSchema(schema, `select ${COLUMNS} from longshore.read_logs($1, $2, $3, $4, $5, $6)`),
    [
      id,
      after.leaseToken,
      after.seq,
      limit,
      seen.map(place => place.leaseToken),
      seen.map(place => place.seq),
    ],
  )
  return rows.map(toPlacedLine)
}

/** The last lines, in order. */
export async function readLastLogs(
  db: Queryable,
  schema: string,
  id: JobId,
  limit: number,
): Promise<LogLine[]> {
  const { rows } = await db.query(
    inSchema(schema, `select ${COLUMNS} from longshore.read_last_logs($1, $2)`),
    [id, limit],
  )
  return rows.map(row => toPlacedLine(row).line).reverse()
}

export async function readProgress(db: Queryable, schema: string, id: JobId): Promise<Progress | undefined> {
  const { rows } = await db.query(
    inSchema(
      schema,
      `select done, total, attempt, ${asMs('at')} as at from longshore.read_progress($1) where done is not null`,
    ),
    [id],
  )
  const [row] = rows
  return (
    row && {
      done: Number(row['done']),
      total: row['total'] === null ? null : Number(row['total']),
      attempt: row['attempt'] as number,
      at: toDate(row['at']),
    }
  )
}

/** Undefined: there is no such job, or its history has been dropped. */
export async function hasEnded(db: Queryable, schema: string, id: JobId): Promise<boolean | undefined> {
  const { rows } = await db.query(inSchema(schema, 'select has_ended from longshore.read_progress($1)'), [id])
  return (rows[0]?.['has_ended'] as boolean | null | undefined) ?? undefined
}

function toPlacedLine(row: Record<string, unknown>): PlacedLine {
  const leaseToken = row['lease_token'] as string
  const seq = row['seq'] as number
  return {
    leaseToken,
    seq,
    line: {
      id: `${leaseToken}.${seq}`,
      attempt: row['attempt'] as number,
      at: toDate(row['at']),
      level: row['level'] as LogLevel,
      message: row['message'] as string,
      data: row['data'],
    },
  }
}
