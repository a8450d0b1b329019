/** What the relay asks of Postgres: the outbox with the truth of what it names, lanes, and how far Redis is. */
import type { JobId } from '../job/job-id.ts'
import type { Queryable } from '../job/queryable.ts'
import type { LaneFacts, ReadyJob } from '../job/ready-job.ts'
import type { BalanceStrategy, ScheduleMode } from '../runtime/settings.ts'
import type { TextQueryable } from './connect.ts'
import { inSchema } from './schema-name.ts'
import type { Holder } from './secret.ts'

export interface OutboxRead {
  isLeader: boolean
  /** Outbox rows, to be forgotten when they have been applied. */
  rows: string[]
  /** Age of the oldest row. */
  oldestMs: number
  ready: ReadyJob[]
  gone: JobId[]
  limits: { limit: number; free: string }[]
  /** Limits that Postgres does not have any more. */
  goneLimits: number[]
  /** Lanes whose limits were set or removed, and lanes that Postgres does not have any more. */
  changedLanes: number[]
  deadWorkers: number[]
  /** Workers have begun: they may serve queues that the relay does not know yet. */
  hasNewWorkers: boolean
}

export interface OutboxAsk {
  holder: Holder
  done: readonly string[]
  /** How far Redis was when `done` was applied. */
  seqs: ReadonlyMap<string, number>
  from: string
  most: number
  /** Scores behind which a lane has no room in Redis. */
  bounds: ReadonlyMap<number, string>
  jobs: readonly string[]
  limits: readonly number[]
}

const items = (text: string | null | undefined) => (text ? text.split(',') : [])

export async function readOutbox(db: TextQueryable, schema: string, ask: OutboxAsk): Promise<OutboxRead> {
  const [row] = await db.queryTexts(
    inSchema(schema, 'select * from longshore.relay_read($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)'),
    [
      ask.holder.name,
      ask.done,
      [...ask.seqs.keys()],
      [...ask.seqs.values()],
      ask.from,
      ask.most,
      [...ask.bounds.keys()],
      [...ask.bounds.values()],
      ask.jobs,
      ask.limits,
      ask.holder.secret,
    ],
  )
  if (!row) throw new Error('relay_read answered nothing')
  const [isLeader, rows, oldestMs, ready, gone, limits, changedLanes, deadWorkers, hasNewWorkers] = row
  return {
    isLeader: isLeader === 't',
    rows: items(rows),
    oldestMs: Number(oldestMs ?? 0),
    ready: items(ready).map(item => {
      const [id, lane, score, leaseToken] = item.split(' ')
      return { id: id as JobId, lane: Number(lane), score: String(score), leaseToken: String(leaseToken) }
    }),
    gone: items(gone) as JobId[],
    limits: items(limits)
      .filter(item => item.includes(' '))
      .map(item => {
        const [limit, free] = item.split(' ')
        return { limit: Number(limit), free: String(free) }
      }),
    goneLimits: items(limits)
      .filter(item => !item.includes(' '))
      .map(Number),
    changedLanes: items(changedLanes).map(Number),
    deadWorkers: items(deadWorkers).map(Number),
    hasNewWorkers: hasNewWorkers === 't',
  }
}

/** Ready jobs of a lane from a place on, best first. */
export async function readLane(
  db: TextQueryable,
  schema: string,
  lane: number,
  from: { score: string; id: string },
  most: number,
): Promise<ReadyJob[]> {
  const [row] = await db.queryTexts(inSchema(schema, 'select * from longshore.read_lane($1, $2, $3, $4)'), [
    lane,
    from.score,
    from.id === '' ? '00000000-0000-0000-0000-000000000000' : from.id,
    most,
  ])
  const [ids, scores, tokens] = (row ?? []).map(items)
  return (ids ?? []).map((id, n) => ({
    id: id as JobId,
    lane,
    score: String(scores?.[n]),
    leaseToken: String(tokens?.[n]),
  }))
}

export async function describeLanes(
  db: Queryable,
  schema: string,
  lanes: readonly number[],
): Promise<LaneFacts[]> {
  const { rows } = await db.query(inSchema(schema, 'select * from longshore.describe_lanes($1)'), [lanes])
  return rows.map(row => ({
    lane: row['lane'] as number,
    queue: row['queue'] as string,
    kind: row['kind'] as number,
    task: row['task'] as string,
    tag: row['tag'] as string,
    constraintTag: row['constraint_tag'] as string,
    isPlain: row['limit_id'] === null,
    hasLimits: row['limit_id'] !== null || row['has_keys'] === true,
    limit: row['limit_id'] as number | null,
    free: row['free'] as string | null,
    keyLimit: row['key_limit'] as number | null,
    keyFree: row['key_free'] as string | null,
  }))
}

/** Whether a worker that may run jobs of the lane has said within so many milliseconds that it could. */
export async function hasIdleWorker(
  db: Queryable,
  schema: string,
  lane: number,
  withinMs: number,
): Promise<boolean> {
  const { rows } = await db.query(
    inSchema(
      schema,
      `select exists (
         select from longshore.worker_lanes m join longshore.workers w on w.id = m.worker_id
         where m.lane = $1 and w.dead_at is null and w.drained_at is null and w.available_capacity > 0
           and w.expires_at - w.lease_ms * interval '1 ms' > clock_timestamp() - $2 * interval '1 ms'
       ) as found`,
    ),
    [lane, withinMs],
  )
  return rows[0]?.['found'] === true
}

/** Lanes of a queue that Redis should know, at most `most` behind `after`. */
export async function readLanesOf(
  db: Queryable,
  schema: string,
  queue: string,
  after: number,
  most: number,
): Promise<number[]> {
  const { rows } = await db.query(
    inSchema(schema, 'select lane from longshore.lanes_with_jobs($1, $2, $3)'),
    [queue, after, most],
  )
  return rows.map(row => row['lane'] as number)
}

/** As the relay's options of the same names; null: as the relay was given them. */
export interface QueueSettings {
  scheduleMode: ScheduleMode | null
  balanceStrategy: BalanceStrategy | null
  fanoutWidth: number | null
}

/** Every queue that has lanes or workers, with what is set for it. */
export async function readQueueSettings(db: Queryable, schema: string): Promise<Map<string, QueueSettings>> {
  const { rows } = await db.query(
    inSchema(
      schema,
      `select n.name, q.schedule_mode as "scheduleMode", q.balance_strategy as "balanceStrategy", q.fanout_width as "fanoutWidth"
       from (
         select queue as name from longshore.lanes where concurrency_key = '' group by queue
         union select unnest(queues) from longshore.workers
         union select name from longshore.queues
       ) n left join longshore.queues q on q.name = n.name`,
    ),
  )
  return new Map(rows.map(({ name, ...settings }) => [name as string, settings as unknown as QueueSettings]))
}

/**
 * The queues that a worker serves and those of `known`, with what is set for them. With `isFirst` also those that have ready jobs, and
 * those of which Redis held something under an earlier leader.
 */
export async function readQueuesToKeep(
  db: Queryable,
  schema: string,
  known: readonly string[],
  isFirst: boolean,
): Promise<Map<string, QueueSettings & { isServed: boolean }>> {
  const { rows } = await db.query(
    inSchema(
      schema,
      `select n.name, n.is_served as "isServed", q.schedule_mode as "scheduleMode",
         q.balance_strategy as "balanceStrategy", q.fanout_width as "fanoutWidth"
       from (
         select s.name, bool_or(s.is_served) as is_served from (
           select unnest(w.queues) as name, true as is_served from longshore.workers w where w.dead_at is null
           union all select unnest($1::text[]), false
           union all select r.queue, false from longshore.relayed r where $2
           union all select j.queue, false from longshore.queues_with_jobs() as j(queue) where $2
         ) s group by s.name
       ) n left join longshore.queues q on q.name = n.name`,
    ),
    [known, isFirst],
  )
  return new Map(
    rows.map(({ name, ...settings }) => [
      name as string,
      settings as unknown as QueueSettings & { isServed: boolean },
    ]),
  )
}

/** While lanes are read in for the first time: no content is so far that a new leader may go on with it. */
export const UNBUILT_SEQ = Number.MAX_SAFE_INTEGER

/** The life of Redis' content of a queue, and the last step whose outbox rows are gone. */
export async function readRelayed(
  db: Queryable,
  schema: string,
  queue: string,
): Promise<{ generation: string; seq: number } | undefined> {
  const { rows } = await db.query(
    inSchema(schema, 'select generation, seq::float8 as seq from longshore.relayed where queue = $1'),
    [queue],
  )
  return rows[0] as { generation: string; seq: number } | undefined
}

/** A new generation of a queue is about to begin: see noteBuilt. False: another process leads. */
export async function noteGeneration(
  db: Queryable,
  schema: string,
  holder: Holder,
  queue: string,
  generation: string,
): Promise<boolean> {
  const { rows } = await db.query(
    inSchema(schema, 'select longshore.note_generation($1, $2, $3, $4, $5) as is_noted'),
    [queue, generation, UNBUILT_SEQ, holder.name, holder.secret],
  )
  return rows[0]?.['is_noted'] === true
}

/** All lanes have been read in by this step: the next leader may go on with it. Does nothing if another leads by now. */
export async function noteBuilt(
  db: Queryable,
  schema: string,
  holder: Holder,
  queue: string,
  { generation, seq }: { generation: string; seq: number },
): Promise<void> {
  await db.query(inSchema(schema, 'select longshore.note_built($1, $2, $3, $4, $5)'), [
    queue,
    generation,
    seq,
    holder.name,
    holder.secret,
  ])
}

/** Nothing is left of this generation in Redis. Does nothing if the queue has a later one, or another leads by now. */
export async function noteEnded(
  db: Queryable,
  schema: string,
  holder: Holder,
  queue: string,
  generation: string,
): Promise<void> {
  await db.query(inSchema(schema, 'select longshore.note_ended($1, $2, $3, $4)'), [
    queue,
    generation,
    holder.name,
    holder.secret,
  ])
}

/** Redis has seen a later epoch than Postgres knows: go above both. Null: another process leads. */
export async function raiseEpoch(
  db: Queryable,
  schema: string,
  holder: Holder,
  above: string,
): Promise<string | null> {
  const { rows } = await db.query(
    inSchema(schema, 'select longshore.raise_epoch($1, $2, $3)::text as epoch'),
    [above, holder.name, holder.secret],
  )
  return rows[0]?.['epoch'] as string | null
}

/** Whether a commit of an outbox row must notify. */
export async function setAsleep(
  db: Queryable,
  schema: string,
  holder: Holder,
  isAsleep: boolean,
): Promise<void> {
  await db.query(inSchema(schema, 'select longshore.set_asleep($1, $2, $3)'), [
    isAsleep,
    holder.name,
    holder.secret,
  ])
}

/** Jobs go through Redis from now on, or not. Answers whether that is a change. */
export async function setDispatch(
  db: Queryable,
  schema: string,
  holder: Holder,
  dispatch: 'redis' | 'direct',
): Promise<boolean> {
  const { rows } = await db.query(
    inSchema(schema, 'select longshore.set_dispatch($1, $2, $3) as has_changed'),
    [dispatch, holder.name, holder.secret],
  )
  return rows[0]?.['has_changed'] === true
}

export async function readDeployment(db: Queryable, schema: string): Promise<string> {
  const { rows } = await db.query(inSchema(schema, 'select deployment from longshore.settings'))
  return String(rows[0]?.['deployment'])
}
