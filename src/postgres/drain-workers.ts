/** The verbs *drain* and *resume*, for whoever is not the worker itself. */
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
    inSchema(
      schema,
      `with named as materialized (
         select w.id, w.name, (w.drained_at is not null) <> $2 as has_changed from longshore.workers w
         where (w.name = any ($1) or w.id::text = any ($1)) and w.dead_at is null and w.expires_at > now()
         order by w.id for update
       )
       select n.id, n.name, n.has_changed as "hasChanged" from named n
       where not n.has_changed or longshore.drain_worker(n.id, $2)`,
    ),
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
  const { rows } = await db.query(
    inSchema(
      schema,
      // Only what runs has a worker.
      'select count(*)::int as running from longshore.jobs where worker_id = any ($1)',
    ),
    [workers.map(worker => worker.id)],
  )
  return rows[0]?.['running'] as number
}
