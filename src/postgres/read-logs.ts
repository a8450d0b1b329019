/** The verb *read logs*: the lines of a job in the order of its runs, and how far it is. */
import type { JobId } from '../job/job-id.ts'
import type { LogLevel, LogLine, Progress } from '../job/job-log.ts'
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from './schema-name.ts'

/** A line's place: the run, by its lease token, and the number within it. */
export interface LinePlace {
  leaseToken: string
  seq: number
}

export interface PlacedLine extends LinePlace {
  line: LogLine
}

const COLUMNS = 'l.lease_token::text as lease_token, l.seq, l.attempt, l.at, l.level, l.message, l.data'

/** The first lines behind a place. */
export async function readLogs(
  db: Queryable,
  schema: string,
  id: JobId,
  after: LinePlace,
  limit: number,
): Promise<LogLine[]> {
  const { rows } = await db.query(
    inSchema(
      schema,
      `select ${COLUMNS} from longshore.job_logs l where l.job_id = $1 and (l.lease_token, l.seq) > ($2::bigint, $3::int)
       order by l.lease_token, l.seq limit $4`,
    ),
    [id, after.leaseToken, after.seq, limit],
  )
  return rows.map(row => toPlacedLine(row).line)
}

/** The last lines, in order. */
export async function readLastLogs(
  db: Queryable,
  schema: string,
  id: JobId,
  limit: number,
): Promise<LogLine[]> {
  const { rows } = await db.query(
    inSchema(
      schema,
      `select ${COLUMNS} from longshore.job_logs l where l.job_id = $1
       order by l.lease_token desc, l.seq desc limit $2`,
    ),
    [id, limit],
  )
  return rows.map(row => toPlacedLine(row).line).reverse()
}

/** Lines behind the last places that were seen of runs, and all of other runs; only of the run `from` and later ones. */
export async function readUnseenLogs(
  db: Queryable,
  schema: string,
  id: JobId,
  { from, places }: { from: string; places: readonly LinePlace[] },
  limit: number,
): Promise<PlacedLine[]> {
  const { rows } = await db.query(
    inSchema(
      schema,
      `select ${COLUMNS} from longshore.job_logs l
       where l.job_id = $1 and l.lease_token >= $2
         and l.seq > coalesce(
           (select s.seq from unnest($3::bigint[], $4::int[]) as s(lease_token, seq) where s.lease_token = l.lease_token), 0)
       order by l.lease_token, l.seq limit $5`,
    ),
    [id, from, places.map(place => place.leaseToken), places.map(place => place.seq), limit],
  )
  return rows.map(toPlacedLine)
}

export async function readProgress(db: Queryable, schema: string, id: JobId): Promise<Progress | undefined> {
  const { rows } = await db.query(
    inSchema(
      schema,
      `select p.done, p.total, p.attempt, p.at from longshore.job_progress p where p.job_id = $1
       order by p.lease_token desc, p.at desc limit 1`,
    ),
    [id],
  )
  return rows[0] as unknown as Progress | undefined
}

/** Undefined: there is no such job, or its history has been dropped. */
export async function hasEnded(db: Queryable, schema: string, id: JobId): Promise<boolean | undefined> {
  const { rows } = await db.query(
    inSchema(
      schema,
      `select false as has_ended from longshore.jobs where id = $1
       union all select true from longshore.finished_jobs where id = $1`,
    ),
    [id],
  )
  return rows[0]?.['has_ended'] as boolean | undefined
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
      at: row['at'] as Date,
      level: row['level'] as LogLevel,
      message: row['message'] as string,
      data: row['data'],
    },
  }
}
