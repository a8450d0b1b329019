/** Owns putting lanes, workers and very many ready jobs into an installation, by SQL. */
import type { Database } from '../stores/database.ts'

export interface Lane {
  readonly task: string
  readonly constraintTag?: string
  readonly key?: string
}

const text = (value: string) => `'${value.replaceAll("'", "''")}'`

export async function registerTask(
  database: Database,
  name: string,
  limits: { concurrency?: number; concurrencyPerKey?: number } = {},
): Promise<void> {
  const task = { name, queue: 'default', tag: 'default', maxAttempts: 3, maxRescues: 10, ...limits }
  await database.query(`select longshore.register_tasks(${text(JSON.stringify([task]))})`)
}

/** Its lease outlives every measurement. */
export async function registerWorker(database: Database, tasks: readonly string[]): Promise<number> {
  const [row] = await database.query(`
    select longshore.register_worker('bench', '{default}', array[${tasks.map(text)}], '{default}', '{}', '{c:}',
      3600000) as id`)
  return row?.['id'] as number
}

/** `count` ready jobs in each lane. Those stored first are the better ones. */
export async function storeJobs(database: Database, lanes: readonly Lane[], count: number): Promise<void> {
  const kinds = lanes.map(
    ({ task, constraintTag = 'c:', key = '' }) => `(${text(task)}, ${text(constraintTag)}, ${text(key)})`,
  )
  await database.query(`
    with lane as materialized (
      select longshore.find_lane('default', k.task, 'default', k.constraint_tag, k.key) as id
      from (values ${kinds.join(',')}) as k(task, constraint_tag, key)
    )
    insert into longshore.jobs (id, lane, score, state, max_attempts, payload)
    select longshore.new_id(), l.id, longshore.score(0, clock_timestamp()), 'ready', 3, '{"tenant": "acme-emea-01"}'
    from generate_series(1, ${count}) n, lane l`)
  if (lanes.some(({ key }) => key)) await storeHeads(database)
}

/** What enqueue notes of lanes with keys: the best job of each. */
export async function storeHeads(database: Database): Promise<void> {
  await database.query(`
    select longshore.note_head(l.id, best.score, best.id)
    from longshore.lanes l cross join lateral (
      select j.score, j.id from longshore.jobs j
      where j.lane = l.id and j.state = 'ready' order by j.score, j.id limit 1
    ) best
    where l.concurrency_key <> '' and not exists (select from longshore.lane_heads h where h.lane = l.id)`)
}

/** Let a worker claim until its limits are full, and known to be; it keeps what it got. */
export async function fillLimits(database: Database, workerId: number): Promise<void> {
  for (;;) {
    const [row] = await database.query(`
      select c.ids is null as is_empty, coalesce(c.wait in ('busy', 'more'), false) as again
      from longshore.claim(${workerId}, 1000) c`)
    if (row?.['is_empty'] && !row['again']) return
  }
}
