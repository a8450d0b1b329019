/** The verbs *drain* and *resume*, for others than the worker itself. */
import type { Queryable } from '../job/queryable.ts'
import { inSchema } from './schema-name.ts'

export interface DrainedWorker {
  id: number
  name: string
  /** False: it was so before. */
  hasChanged: boolean
}

/** Live workers by id or name, all in one step. */
export async function drainWorkers(
  db: Queryable,
  schema: string,
  named: readonly string[],
  isToDrain: boolean,
): Promise<DrainedWorker[]> {
  const { rows } = await db.query(
    inSchema(schema, 'select id, name, has_changed as "hasChanged" from longshore.drain_workers($1, $2)'),
    [named, isToDrain],
  )
  return rows as unknown as DrainedWorker[]
}

/** How many jobs run under these workers. */
export async function readRunning(
  db: Queryable,
  schema: string,
  workers: readonly { id: number }[],
): Promise<number> {
  const { rows } = await db.query(inSchema(schema, 'select longshore.count_running($1)::int as running'), [
    workers.map(worker => worker.id),
  ])
  return rows[0]?.['running'] as number
}
