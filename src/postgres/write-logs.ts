/** The verb *write logs*: lines and progress of runs, in a statement of their own. */
import type { JobId } from '../job/job-id.ts'
import type { LogLevel } from '../job/job-log.ts'
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from './schema-name.ts'
import type { WorkerKey } from './secret.ts'

/** The run that says it. */
interface OfRun {
  id: JobId
  leaseToken: string
  attempt: number
}

export interface NewLine {
  run: OfRun
  /** Its place among the lines of its run. */
  seq: number
  ageMs: number
  level: LogLevel
  message: string
  /** JSON text. */
  data: string | null
}

export interface NewProgress {
  run: OfRun
  done: number
  total: number | null
}

/** Lines of runs of one worker. Returns how many Postgres refused because the worker has not run their jobs. */
export async function writeLogs(
  db: Queryable,
  schema: string,
  worker: WorkerKey,
  lines: readonly NewLine[],
  progress: readonly NewProgress[],
): Promise<number> {
  const { rows } = await db.query(
    inSchema(schema, 'select longshore.write_logs($1, $2, $3, $4) as refused'),
    [`[${lines.map(lineText).join()}]`, `[${progress.map(progressText).join()}]`, worker.id, worker.secret],
  )
  return rows[0]?.['refused'] as number
}

const runText = ({ id, leaseToken, attempt }: OfRun) =>
  `"job":"${id}","lease":${leaseToken},"attempt":${attempt}`

const lineText = ({ run, seq, ageMs, level, message, data }: NewLine) =>
  `{${runText(run)},"seq":${seq},"age":${ageMs},"level":"${level}","message":${JSON.stringify(message)},"data":${data}}`

const progressText = ({ run, done, total }: NewProgress) =>
  `{${runText(run)},"done":${done},"total":${total}}`
