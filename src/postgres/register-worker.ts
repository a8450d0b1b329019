/** The life of a worker's row: one per life of a worker, see worker-life.ts. */
import type { JobId } from '../job/job-id.ts'
import type { Queryable } from '../job/queryable.ts'
import { explainRefusal } from './refused.ts'
import { inSchema } from './schema-name.ts'

export interface WorkerFacts {
  name: string
  queues: string[]
  tasks: string[]
  tags: string[]
  /** What it has, by key. */
  properties: Record<string, string>
  constraintTags: string[]
  /** How long it may go without a sign of life. */
  leaseMs: number
  /** It is to take no jobs before it is told otherwise. */
  isDrained?: boolean
}

/** Returns the id, new for each life. */
export async function registerWorker(db: Queryable, schema: string, facts: WorkerFacts): Promise<number> {
  const { rows } = await db
    .query(inSchema(schema, 'select longshore.register_worker($1, $2, $3, $4, $5, $6, $7, $8) as id'), [
      facts.name,
      facts.queues,
      facts.tasks,
      facts.tags,
      facts.properties,
      facts.constraintTags,
      facts.leaseMs,
      facts.isDrained ?? false,
    ])
    .catch(explainRefusal)
  return rows[0]?.['id'] as number
}

/** The next claim of this worker goes by these. Nothing happens when its row is gone. */
export async function setProperties(
  db: Queryable,
  schema: string,
  workerId: number,
  { properties, constraintTags }: Pick<WorkerFacts, 'properties' | 'constraintTags'>,
): Promise<void> {
  await db
    .query(inSchema(schema, 'select longshore.set_properties($1, $2, $3)'), [
      workerId,
      properties,
      constraintTags,
    ])
    .catch(explainRefusal)
}

/** False: there is no such worker, or it is dead. It is told. */
export async function drainWorker(
  db: Queryable,
  schema: string,
  workerId: number,
  isDrained: boolean,
): Promise<boolean> {
  const { rows } = await db.query(inSchema(schema, 'select longshore.drain_worker($1, $2) as found'), [
    workerId,
    isDrained,
  ])
  return rows[0]?.['found'] as boolean
}

export async function readIsDrained(db: Queryable, schema: string, workerId: number): Promise<boolean> {
  const { rows } = await db.query(
    inSchema(schema, 'select from longshore.workers where id = $1 and drained_at is not null'),
    [workerId],
  )
  return rows.length > 0
}

/** The row stays while jobs run under it: only so are they rescued. */
export async function unregisterWorker(db: Queryable, schema: string, workerId: number): Promise<void> {
  await db.query(inSchema(schema, 'select longshore.unregister_worker($1)'), [workerId])
}

/** Whether whoever makes a job ready must ring this worker. */
export async function setListening(
  db: Queryable,
  schema: string,
  workerId: number,
  isListening: boolean,
): Promise<void> {
  await db.query(inSchema(schema, 'update longshore.workers set listening = $2 where id = $1'), [
    workerId,
    isListening,
  ])
}

/** The tasks of these lanes, and of the lanes without keys of these tasks, by lane id. */
export async function readLanes(
  db: Queryable,
  schema: string,
  wanted: { lanes?: number[]; tasks?: string[] },
): Promise<Map<number, string>> {
  const { rows } = await db.query(
    inSchema(
      schema,
      `select id, task from longshore.lanes where id = any ($1)
       union all select id, task from longshore.lanes where task = any ($2) and concurrency_key = ''`,
    ),
    [wanted.lanes ?? [], wanted.tasks ?? []],
  )
  return new Map(rows.map(row => [row['id'] as number, row['task'] as string]))
}

/** The runs of this worker that somebody has cancelled. */
export async function readCancelled(
  db: Queryable,
  schema: string,
  workerId: number,
): Promise<{ id: JobId; leaseToken: string }[]> {
  return readRuns(db, schema, workerId, 'and is_cancelled')
}

/** Every run that Postgres believes this worker holds. Reads the whole table: only after an unclear failure. */
export async function readLeases(
  db: Queryable,
  schema: string,
  workerId: number,
): Promise<{ id: JobId; leaseToken: string }[]> {
  return readRuns(db, schema, workerId, '')
}

async function readRuns(db: Queryable, schema: string, workerId: number, condition: string) {
  const text = `select id, lease_token::text as token from longshore.jobs where worker_id = $1 ${condition}`
  const { rows } = await db.query(inSchema(schema, text), [workerId])
  return rows.map(row => ({ id: row['id'] as JobId, leaseToken: row['token'] as string }))
}
