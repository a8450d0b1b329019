/** The life of a worker's row: one per life of a worker, see worker-life.ts. */
import type { JobId } from '../job/job-id.ts'
import type { Queryable } from '../job/queryable.ts'
import { explainRefusal } from './refused.ts'
import { inSchema } from './schema-name.ts'
import { newSecret, type WorkerKey } from './secret.ts'
import type { Lease } from './settle-and-claim.ts'

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

/** Returns the id and the secret, new for each life. */
export async function registerWorker(db: Queryable, schema: string, facts: WorkerFacts): Promise<WorkerKey> {
  const secret = newSecret()
  const { rows } = await db
    .query(inSchema(schema, 'select longshore.register_worker($1, $2, $3, $4, $5, $6, $7, $8, $9) as id'), [
      facts.name,
      facts.queues,
      facts.tasks,
      facts.tags,
      facts.properties,
      facts.constraintTags,
      facts.leaseMs,
      facts.isDrained ?? false,
      secret,
    ])
    .catch(explainRefusal)
  return { id: rows[0]?.['id'] as number, secret }
}

/** The next claim of this worker goes by these. Nothing happens when its row is gone. */
export async function setProperties(
  db: Queryable,
  schema: string,
  worker: WorkerKey,
  { properties, constraintTags }: Pick<WorkerFacts, 'properties' | 'constraintTags'>,
): Promise<void> {
  await db
    .query(inSchema(schema, 'select longshore.set_properties($1, $2, $3, $4)'), [
      worker.id,
      properties,
      constraintTags,
      worker.secret,
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

/** Undefined: the worker has no row any more, so its life is over. */
export async function readIsDrained(
  db: Queryable,
  schema: string,
  workerId: number,
): Promise<boolean | undefined> {
  const { rows } = await db.query(
    inSchema(schema, 'select drained_at is not null as is_drained from longshore.workers where id = $1'),
    [workerId],
  )
  return rows[0]?.['is_drained'] as boolean | undefined
}

/** The row stays while jobs run under it: only so are they rescued. */
export async function unregisterWorker(db: Queryable, schema: string, worker: WorkerKey): Promise<void> {
  await db.query(inSchema(schema, 'select longshore.unregister_worker($1, $2)'), [worker.id, worker.secret])
}

/** The best score below `before` of a ready job that this worker may claim; null: there is none. */
export async function readBestBefore(
  db: Queryable,
  schema: string,
  worker: WorkerKey,
  before: number,
): Promise<number | null> {
  const { rows } = await db.query(inSchema(schema, 'select longshore.best_before($1, $2, $3) as score'), [
    worker.id,
    before,
    worker.secret,
  ])
  const score = rows[0]?.['score'] as string | null
  return score === null ? null : Number(score)
}

/** Whether making a job ready must ring this worker. */
export async function setListening(
  db: Queryable,
  schema: string,
  worker: WorkerKey,
  isListening: boolean,
): Promise<void> {
  await db.query(inSchema(schema, 'select longshore.set_listening($1, $2, $3)'), [
    worker.id,
    isListening,
    worker.secret,
  ])
}

/**
 * Tells of transactions that were under way when it was first asked: whether one of them is still open. Every transaction that makes jobs
 * ready has a number before it looks for workers that listen.
 */
export function createLateCommits(db: Queryable): () => Promise<boolean> {
  let number: string | undefined
  return async () => {
    const { rows } = await db.query(
      `select g.number::text, pg_snapshot_xmin(pg_current_snapshot()) < g.number as is_late
       from (select coalesce($1::text::xid8, pg_current_xact_id()) as number) g`,
      [number ?? null],
    )
    number = rows[0]?.['number'] as string
    return rows[0]?.['is_late'] === true
  }
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

/** The runs of this worker that were cancelled, or every run that it holds for Postgres. */
export async function readRuns(
  db: Queryable,
  schema: string,
  worker: WorkerKey,
  which: 'all' | 'cancelled',
): Promise<Lease[]> {
  const { rows } = await db.query(
    inSchema(schema, 'select id, lease_token::text as token from longshore.read_runs($1, $2, $3)'),
    [worker.id, which === 'cancelled', worker.secret],
  )
  return rows.map(row => ({ id: row['id'] as JobId, leaseToken: row['token'] as string }))
}
