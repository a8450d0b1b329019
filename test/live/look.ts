/** Reads the truth out of Postgres for the watch: every job that has not ended, at one moment. */
import { parseConstraintTag } from '../../src/job/constraints.ts'
import type { TestDatabase } from '../support/database.ts'
import type { Sample, SeenJob, SeenWorker } from './watch.ts'

interface Row {
  at: number
  id: string | null
  state: SeenJob['state']
  task: string
  queue: string
  tag: string
  constraint_tag: string
  concurrency_key: string
  score: number
  due_at: number
  attempts: number
  worker_id: number | null
  started_at: number | null
  waits_for: number
}

const MS = (time: string) => `(extract(epoch from ${time}) * 1000)::float8`

const LOOK = `
  select ${MS('n.at')} as at, j.id, j.state, l.task, l.queue, l.tag, l.constraint_tag, l.concurrency_key,
    j.score::float8 as score, ${MS('longshore.run_at_of(j.score)')} as due_at, j.attempts::int as attempts, j.worker_id,
    ${MS('j.started_at')} as started_at,
    (select count(*) from longshore.edges e join longshore.jobs p on p.id = e.parent where e.child = j.id)::int
      + (j.has_turn is false and exists (select from longshore.jobs o where o.workflow = j.workflow and o.has_turn))::int
      as waits_for
  from (select clock_timestamp() as at) n
  left join (longshore.jobs j join longshore.lanes l on l.id = j.lane) on l.task like $1 || '%'`

/** A worker of this process. */
export interface KnownWorker extends SeenWorker {
  /** The id of its row. */
  id: number
  /** Runs that its handlers have begun, by job and attempt. */
  begun: ReadonlySet<string>
}

export const runKey = (jobId: string, attempt: number) => `${jobId} ${attempt}`

/** `prefix`: what the names of the fleet's tasks begin with. */
export async function look(
  database: TestDatabase,
  prefix: string,
  workers: readonly KnownWorker[],
): Promise<Sample> {
  const rows = await database.rows<Row>(LOOK, [prefix], { isPlanned: true })
  const byId = new Map(workers.map(worker => [worker.id, worker]))
  const jobs = rows.flatMap((row): SeenJob[] => {
    if (row.id === null) return []
    const worker = row.worker_id === null ? undefined : byId.get(row.worker_id)
    return [
      {
        id: row.id,
        task: row.task.slice(prefix.length),
        queue: row.queue,
        tag: row.tag,
        constraints: parseConstraintTag(row.constraint_tag),
        ...(row.concurrency_key === '' ? {} : { key: row.concurrency_key }),
        score: row.score,
        state: row.state,
        dueAtMs: row.due_at,
        waitsFor: row.waits_for,
        ...(row.worker_id === null ? {} : { worker: worker?.name ?? `worker ${row.worker_id}` }),
        ...(row.started_at === null ? {} : { startedAtMs: row.started_at }),
        isBegun: worker?.begun.has(runKey(row.id, row.attempts)) ?? false,
      },
    ]
  })
  // As they are now, not as they were when the query was sent: what has begun meanwhile was running then, or was not to be seen.
  const seen = workers.map(({ name, permits, isDrained, tasks, queues, tags, properties, inside }) => ({
    ...{ name, permits, isDrained, tasks, queues, tags, properties },
    inside: [...inside],
  }))
  return { atMs: rows[0]?.at ?? 0, jobs, workers: seen }
}

const EVIDENCE = `
  with lane as (select * from longshore.lanes l where l.task like $1 || '%')
  select 'worker ' || row_to_json(w) as line
  from (select id, name, listening, drained_at, dead_at from longshore.workers) w
  union all
  select 'limit ' || row_to_json(k)
  from (select k.*, (select json_agg(g) from longshore.slot_groups g where g.limit_id = k.id and g.used > 0) as used
    from longshore.limits k where k.task like $1 || '%') k
  union all select 'waiter ' || row_to_json(w) from longshore.limit_waiters w where w.task like $1 || '%'
  union all select 'lane ' || row_to_json(l) from lane l
  union all select 'head ' || row_to_json(h) from longshore.lane_heads h where h.lane in (select id from lane)`

/** What Postgres keeps of workers, limits and lanes, for a history. */
export async function readEvidence(database: TestDatabase, prefix: string): Promise<string[]> {
  return (await database.rows<{ line: string }>(EVIDENCE, [prefix])).map(({ line }) => line)
}
