/**
 * Owns the look at a whole deployment: queues, workers, limits, groups, upkeep. Asked once a second by people and scrapers, so each
 * statement reads a bounded number of rows whatever there is, and every number says how exact it is.
 *
 * A table of jobs that is small enough is counted in one pass, and all is exact. A larger one is looked at through its indexes;
 * running jobs are told by the beats of the workers.
 */
import { constraintTags } from '../job/constraints.ts'
import type { Pool } from './connect.ts'
import { explainDenied } from './denied.ts'
import { type FailingDuty, readFailingDuties } from './failing-duties.ts'
import { inSchema } from './schema-name.ts'
import { asMs, toDate } from './times.ts'

/** `atLeast`: counting ended at the bound. `about`: by the last beats of the workers; one of several queues counts for each of them. */
export interface Count {
  count: number
  is: 'exact' | 'atLeast' | 'about'
}

export interface QueueOverview {
  name: string
  ready: Count
  scheduled: Count
  waiting: Count
  running: Count
  /** For how long the ready job that is due for the longest has been due; null when none is ready. */
  oldestReadyMs: number | null
  /** For how long a scheduled job has been due without being made ready; 0 when the upkeep keeps up. */
  overdueMs: number
  /** As in `longshore queues`; null: the relay's own setting. */
  scheduleMode: 'fanout' | 'balanced' | null
  /** What Redis holds of it, if a relay has made it known. */
  generation: string | null
}

export interface WorkerOverview {
  id: number
  name: string
  state: 'live' | 'drained' | 'dead'
  /** As of its last beat, like all that may be null: there has been none. */
  inFlight: number | null
  capacity: number | null
  /** Of the memory that it may use, from 0 to 1. */
  memory: number | null
  eventLoopLagMs: number | null
  completed: number | null
  failed: number | null
  queues: string[]
  tasks: string[]
  tags: string[]
  properties: Record<string, string>
  startedAt: Date
  beatAgeMs: number
}

export interface Unserved {
  queue: string
  task: string
  tag: string
  /** `c:` when they ask for nothing. */
  constraintTag: string
}

export interface LimitOverview {
  task: string
  /** '' for the limit of the task itself. */
  key: string
  /** null: it has been removed, and what holds its slots drains. */
  capacity: number | null
  used: number
}

export interface GroupOverview {
  id: string
  name: string | null
  isStuck: boolean
  ageMs: number
  /** Jobs that have not ended. */
  left: Count
}

export interface Overview {
  /** By the database's clock. */
  at: Date
  dispatch: 'direct' | 'redis'
  /** The busiest first. */
  queues: QueueOverview[]
  queueCount: number
  /** How many ready jobs there are by Postgres's own estimate, some minutes old; null where it has none. */
  readyEstimate: number | null
  /** Live ones first. */
  workers: WorkerOverview[]
  workerCount: Count
  /** Ready jobs that no live worker takes: of which task, queue and tag, and what they ask for. Some of them, if they are many. */
  unserved: Unserved[]
  /** Those with slots taken, the fullest first. */
  limits: LimitOverview[]
  limitCount: Count
  groups: {
    unfinished: Count
    stuck: Count /** Stuck ones first, then the oldest. */
    shown: GroupOverview[]
  }
  upkeep: {
    /** The process that does it; null: none. */
    leader: string | null
    /** Relays take it from workers. */
    rank: (typeof RANKS)[number]
    epoch: number
    /** Duties that fail, those for longest first. */
    failing: FailingDuty[]
  }
  /** Changes that Redis does not know of yet. */
  outbox: { rows: Count; oldestMs: number }
  /**
   * For how long the oldest transaction of the database has been open: rows that are deleted meanwhile take room until it
   * ends, and slow down queries. Of other users only where this one may see what they do (`pg_monitor`).
   */
  oldestTransactionMs: number
  /** Rows of jobs that are gone and whose room is not free yet, by Postgres's own estimate. */
  deadRows: number
  /** Jobs since the statistics of Postgres began, or were reset: a counter that may fall, by about a second late. */
  totals: { enqueued: number; ended: number }
}

export interface OverviewOptions {
  /** What a count of jobs ends at. Default 10,000. */
  countUpTo?: number
  /** Limits to name. Default 20. */
  limits?: number
  /** Groups to name. Default 10. */
  groups?: number
  /** What a single statement may take. Default 5 s. */
  timeoutMs?: number
}

/** Counting so many, of 8 kB each, takes some 20 ms. */
const SMALL_PAGES = 2000
const MOST_WORKERS = 1000
const MOST_QUEUES = 200
/** Lanes, times the priorities in each, that are walked through. */
const MOST_STEPS = 20_000
const MOST_SLOT_GROUPS = 50_000
const MOST_GROUPS = 1000
const MOST_LEFT = 1000
const MOST_LANES = 1000
const MOST_UNSERVED = 20

const RANKS = ['worker', 'relay', 'relay with Redis'] as const

type Row = Record<string, unknown>

/** All from one snapshot, in a transaction of its own. */
export function readOverview(pool: Pool, schema: string, options: OverviewOptions = {}): Promise<Overview> {
  const most = options.countUpTo ?? 10_000
  return pool.transaction(async tx => {
    const ask: Ask = async (sql, values) => {
      const text = inSchema(schema, sql)
      return (await tx.query(text, values).catch(error => explainDenied(error, text))).rows
    }
    await tx.query(
      `set transaction isolation level repeatable read, read only; set local jit = off; set local enable_bitmapscan = off;
       set local statement_timeout = ${Math.ceil(options.timeoutMs ?? 5000)}`,
    )
    const [facts = {}] = await ask(FACTS)
    const workers = (await ask(WORKERS, [MOST_WORKERS + 1])).map(toWorker)
    const isSmall = Number(facts['pages']) <= SMALL_PAGES
    const counted = isSmall ? await countAll(ask) : await countByIndex(ask, most)
    const lanes = (await ask(READY_LANES, [MOST_LANES])) as unknown as Unserved[]
    const named = await ask(QUEUES)
    const limits = await ask(LIMITS, [MOST_SLOT_GROUPS + 1, options.limits ?? 20])
    const groups = await ask(GROUPS, [MOST_GROUPS + 1, options.groups ?? 10, MOST_LEFT + 1])
    const [outbox = {}] = await ask(OUTBOX, [most + 1])
    const failing = await readFailingDuties(tx, schema)
    const at = toDate(facts['at'])
    const queues = toQueues(named, counted, { at: at.getTime(), most, workers, isSmall })
    return {
      at,
      dispatch: facts['dispatch'] as Overview['dispatch'],
      queues: queues.sort(byBusiness).slice(0, MOST_QUEUES),
      queueCount: queues.length,
      readyEstimate: numberOrNull(facts['ready_estimate'] ?? null),
      workers: workers.slice(0, MOST_WORKERS),
      workerCount: upTo(MOST_WORKERS, workers.length),
      unserved: workers.length > MOST_WORKERS ? [] : unservedOf(lanes, workers).slice(0, MOST_UNSERVED),
      limits: limits.filter(row => row['task'] !== null).map(toLimit),
      limitCount: {
        count: Number(limits[0]?.['all_of_them'] ?? 0),
        is: limits[0]?.['is_cut'] === true ? 'atLeast' : 'exact',
      },
      groups: {
        unfinished: upTo(MOST_GROUPS, Number(groups[0]?.['unfinished'] ?? 0)),
        stuck: {
          count: Number(groups[0]?.['stuck'] ?? 0),
          is: Number(groups[0]?.['unfinished'] ?? 0) > MOST_GROUPS ? 'atLeast' : 'exact',
        },
        shown: groups.filter(row => row['id'] !== null).map(toGroup),
      },
      upkeep: {
        leader: facts['is_led'] === true ? String(facts['holder']) : null,
        rank: RANKS[Number(facts['rank'])] ?? 'worker',
        epoch: Number(facts['epoch']),
        failing,
      },
      outbox: {
        rows: upTo(most, Number(outbox['rows'])),
        oldestMs: Math.max(0, Number(outbox['oldest_ms'] ?? 0)),
      },
      oldestTransactionMs: Math.max(0, Number(facts['oldest_transaction_ms'] ?? 0)),
      deadRows: Number(facts['dead_rows']),
      totals: { enqueued: Number(facts['enqueued']), ended: Number(facts['ended']) },
    }
  })
}

const FACTS = `
  select ${asMs('now()')} as at, s.dispatch, l.holder, l.rank, l.epoch, l.expires_at > now() as is_led,
    pg_relation_size(j.oid) / current_setting('block_size')::int as pages,
    -- Analyze and vacuum count the entries of the index, so it knows of ready jobs only.
    (select nullif(i.reltuples, -1) from pg_class i where i.oid = 'longshore.jobs_ready'::regclass) as ready_estimate,
    extract(epoch from clock_timestamp() - longshore.oldest_transaction()) * 1000 as oldest_transaction_ms,
    pg_stat_get_dead_tuples(j.oid) as dead_rows, pg_stat_get_tuples_inserted(j.oid) as enqueued,
    -- What has ended is written here once, whoever ended it and however; and reading it costs nothing.
    (select coalesce(sum(pg_stat_get_tuples_inserted(p.inhrelid)), 0) from pg_inherits p
     where p.inhparent = 'longshore.finished_jobs'::regclass) as ended
  from longshore.settings s, longshore.leader l, (select 'longshore.jobs'::regclass::oid) j`

const WORKERS = `
  select w.*, ${asMs('w.started_at')} as started_at_ms, extract(epoch from now() - w.beat_at) * 1000 as beat_age_ms
  from longshore.worker_status w
  order by array_position('{live,drained,dead}', w.state), w.id limit $1`

/** A row for each lane: how many jobs are in each state, since when its oldest ready job is due, and the first scheduled one. */
const COUNT_ALL = `
  select c.lane, l.queue, c.ready, c.scheduled, c.waiting, c.running, c.oldest_ready, c.first_scheduled
  from (
    select j.lane, count(*) filter (where j.state = 'ready') as ready, count(*) filter (where j.state = 'scheduled') as scheduled,
      count(*) filter (where j.state = 'waiting') as waiting, count(*) filter (where j.state = 'running') as running,
      min(longshore.run_at_ms_of(j.score)) filter (where j.state = 'ready') as oldest_ready,
      min(longshore.run_at_ms_of(j.score)) filter (where j.state = 'scheduled') as first_scheduled
    from longshore.jobs j group by j.lane
  ) c
  left join longshore.lanes l on l.id = c.lane`

/**
 * From one lane and priority to the next: the first job of each is its oldest. Then up to $2 jobs of each queue are counted, so that a
 * queue with many does not hide another.
 */
const COUNT_READY = `
  with recursive steps as (
    (select j.lane, j.score from longshore.jobs j where j.state = 'ready' order by j.lane, j.score limit 1)
    union all
    select n.lane, n.score from steps s cross join lateral (
      select j.lane, j.score from longshore.jobs j
      where j.state = 'ready' and (j.lane, j.score) > (s.lane, s.score | 4398046511103) order by j.lane, j.score limit 1
    ) n
  ), walked as materialized (
    select * from steps limit $1
  ), in_lanes as materialized (
    select s.lane, l.queue, min(longshore.run_at_ms_of(s.score)) as oldest_ready
    from walked s left join longshore.lanes l on l.id = s.lane group by s.lane, l.queue
  )
  select q.queue, q.oldest_ready, c.ready, (select count(*) from walked) as steps
  from (select i.queue, min(i.oldest_ready) as oldest_ready from in_lanes i group by i.queue) q
  cross join lateral (
    select count(*) as ready from (
      select from in_lanes i cross join lateral (
        select from longshore.jobs j where j.lane = i.lane and j.state = 'ready' order by j.score, j.id limit $2
      ) o
      where i.queue is not distinct from q.queue limit $2
    ) o
  ) c`

/** The lanes in which a job is ready, from one to the next. */
const READY_LANES = `
  with recursive steps as (
    (select j.lane from longshore.jobs j where j.state = 'ready' order by j.lane, j.score limit 1)
    union all
    select n.lane from steps s cross join lateral (
      select j.lane from longshore.jobs j where j.state = 'ready' and j.lane > s.lane order by j.lane, j.score limit 1
    ) n
  )
  select l.queue, l.task, l.tag, l.constraint_tag as "constraintTag"
  from (select * from steps limit $1) s join longshore.lanes l on l.id = s.lane`

/** A row that was written by hand may hold anything: a look at all must not end there. */
function tagsOf(properties: Record<string, string>): string[] {
  try {
    return constraintTags(properties)
  } catch {
    return ['c:']
  }
}

/** As a claim decides: by task, queue, tag and constraint tag. */
function unservedOf(lanes: readonly Unserved[], workers: readonly WorkerOverview[]): Unserved[] {
  const live = workers
    .filter(({ state }) => state === 'live')
    .map(({ queues, tasks, tags, properties }) => ({
      queues: new Set(queues),
      tasks: new Set(tasks),
      tags: new Set(tags),
      constraintTags: new Set(tagsOf(properties)),
    }))
  return lanes.filter(
    ({ queue, task, tag, constraintTag }) =>
      !live.some(
        worker =>
          worker.tasks.has(task) &&
          worker.queues.has(queue) &&
          worker.tags.has(tag) &&
          worker.constraintTags.has(constraintTag),
      ),
  )
}

const COUNT_SCHEDULED = `
  select l.queue, count(*) as scheduled, min(s.due) as first_scheduled
  from (
    select j.lane, longshore.run_at_ms_of(j.score) as due from longshore.jobs j
    where j.state = 'scheduled' order by longshore.run_at_ms_of(j.score) limit $1
  ) s
  left join longshore.lanes l on l.id = s.lane group by l.queue`

/** A waiting job is in a group or in a workflow. Those of a group are found by its id; in a workflow all but one wait. */
const COUNT_WAITING = `
  with open_groups as materialized (
    select g.id from longshore.groups g where g.finished_at is null order by g.id limit $2
  ), in_groups as materialized (
    select o.lane from open_groups g cross join lateral (
      select j.lane from longshore.jobs j where j.group_id = g.id and j.state = 'waiting' limit $1
    ) o
    limit $1
  ), in_workflows as materialized (
    select j.lane, j.state = 'waiting' and j.group_id is null as is_meant from longshore.jobs j
    where j.workflow is not null order by j.workflow, j.workflow_seq limit $1
  )
  select w.queue, w.waiting,
    (select count(*) >= $1 from in_groups) or (select count(*) >= $1 from in_workflows)
      or (select count(*) >= $2 from open_groups) as is_cut
  from (select) one
  left join (
    select l.queue, count(*) as waiting
    from (select lane from in_groups union all select lane from in_workflows where is_meant) j
    left join longshore.lanes l on l.id = j.lane group by l.queue
  ) w on true`

const LIMITS = `
  with slots as materialized (
    select g.limit_id, g.used from longshore.slot_groups g order by g.limit_id, g.era, g.number limit $1
  )
  select l.*, (select count(*) >= $1 from slots) as is_cut
  from (select) one
  left join (
    select l.task, l.key, l.capacity, u.used, count(*) over () as all_of_them
    from (select s.limit_id, sum(s.used) as used from slots s group by s.limit_id having sum(s.used) > 0) u
    join longshore.limits l on l.id = u.limit_id
    order by u.used / l.capacity::float8 desc nulls first, u.used desc, l.task, l.key limit $2
  ) l on true`

const GROUPS = `
  with unfinished as materialized (
    select g.id, g.name, g.created_at, g.stuck is not null as is_stuck
    from longshore.groups g where g.finished_at is null order by g.id limit $1
  )
  select g.*, c.unfinished, c.stuck
  from (select count(*) as unfinished, count(*) filter (where is_stuck) as stuck from unfinished) c
  left join (
    select u.id, u.name, u.is_stuck, extract(epoch from now() - u.created_at) * 1000 as age_ms, o.open
    from (select * from unfinished order by is_stuck desc, created_at, id limit $2) u
    cross join lateral (
      select count(*) as open from (select from longshore.jobs j where j.group_id = u.id limit $3) j
    ) o
    order by u.is_stuck desc, u.created_at, u.id
  ) g on true`

const OUTBOX = `
  select (select count(*) from (select from longshore.outbox o order by o.id limit $1) o) as rows,
    (select extract(epoch from now() - o.created_at) * 1000 from longshore.outbox o order by o.id limit 1) as oldest_ms`

const QUEUES = `
  select n.name, q.schedule_mode, r.generation
  from (
    select name from longshore.queues union select queue from longshore.tasks union select queue from longshore.relayed
    union select unnest(queues) from longshore.workers
  ) n
  left join longshore.queues q on q.name = n.name
  left join longshore.relayed r on r.queue = n.name`

interface Counted {
  queues: Map<
    string,
    { ready: number; scheduled: number; waiting: number; running: number; oldest: number; due: number }
  >
  /** What counting ended at a bound in. */
  isCut: { ready: boolean; scheduled: boolean; waiting: boolean }
}

/** A lane that is gone tells no queue. */
const UNKNOWN = '?'

function add(counted: Counted, rows: readonly Row[]): void {
  for (const row of rows) {
    const name = (row['queue'] as string | null) ?? UNKNOWN
    const queue = counted.queues.get(name) ?? {
      ready: 0,
      scheduled: 0,
      waiting: 0,
      running: 0,
      oldest: Number.POSITIVE_INFINITY,
      due: Number.POSITIVE_INFINITY,
    }
    for (const state of ['ready', 'scheduled', 'waiting', 'running'] as const)
      queue[state] += Number(row[state] ?? 0)
    queue.oldest = Math.min(queue.oldest, Number(row['oldest_ready'] ?? Number.POSITIVE_INFINITY))
    queue.due = Math.min(queue.due, Number(row['first_scheduled'] ?? Number.POSITIVE_INFINITY))
    counted.queues.set(name, queue)
  }
}

type Ask = (sql: string, values?: unknown[]) => Promise<Row[]>

async function countAll(ask: Ask): Promise<Counted> {
  const counted: Counted = { queues: new Map(), isCut: { ready: false, scheduled: false, waiting: false } }
  add(counted, await ask(COUNT_ALL))
  return counted
}

async function countByIndex(ask: Ask, most: number): Promise<Counted> {
  const counted: Counted = { queues: new Map(), isCut: { ready: false, scheduled: false, waiting: false } }
  const ready = await ask(COUNT_READY, [MOST_STEPS, most + 1])
  const scheduled = await ask(COUNT_SCHEDULED, [most + 1])
  const waiting = await ask(COUNT_WAITING, [most + 1, MOST_GROUPS + 1])
  add(counted, ready)
  add(counted, scheduled)
  add(
    counted,
    waiting.filter(row => row['waiting'] !== null),
  )
  counted.isCut = {
    ready: Number(ready[0]?.['steps'] ?? 0) >= MOST_STEPS,
    scheduled: scheduled.reduce((sum, row) => sum + Number(row['scheduled']), 0) > most,
    waiting: waiting[0]?.['is_cut'] === true,
  }
  return counted
}

/** Counted up to one more than `most`. */
const upTo = (most: number, count: number, isCut = false): Count => ({
  count: Math.min(count, most),
  is: isCut || count > most ? 'atLeast' : 'exact',
})

function toQueues(
  named: readonly Row[],
  { queues, isCut }: Counted,
  context: { at: number; most: number; workers: readonly WorkerOverview[]; isSmall: boolean },
): QueueOverview[] {
  const { at, workers, isSmall } = context
  const most = isSmall ? Number.POSITIVE_INFINITY : context.most
  const known = new Map(named.map(row => [String(row['name']), row]))
  const age = (since: number) => (Number.isFinite(since) ? Math.max(0, at - since) : null)
  return [...new Set([...known.keys(), ...queues.keys()])].map(name => {
    const counts = queues.get(name)
    const inFlight = workers.reduce((sum, { queues: served, inFlight: jobs, state }) => {
      return sum + (state !== 'dead' && served.includes(name) ? (jobs ?? 0) : 0)
    }, 0)
    return {
      name,
      ready: upTo(most, counts?.ready ?? 0, isCut.ready),
      scheduled: upTo(most, counts?.scheduled ?? 0, isCut.scheduled),
      waiting: upTo(most, counts?.waiting ?? 0, isCut.waiting),
      running: isSmall ? { count: counts?.running ?? 0, is: 'exact' } : { count: inFlight, is: 'about' },
      oldestReadyMs: age(counts?.oldest ?? Number.POSITIVE_INFINITY),
      overdueMs: age(counts?.due ?? Number.POSITIVE_INFINITY) ?? 0,
      scheduleMode: (known.get(name)?.['schedule_mode'] as QueueOverview['scheduleMode']) ?? null,
      generation: (known.get(name)?.['generation'] as string | null) ?? null,
    }
  })
}

const numberOrNull = (value: unknown): number | null => (value === null ? null : Number(value))

const toWorker = (row: Row): WorkerOverview => ({
  id: Number(row['id']),
  name: String(row['name']),
  state: row['state'] as WorkerOverview['state'],
  inFlight: numberOrNull(row['in_flight']),
  capacity: numberOrNull(row['max_capacity']),
  memory: numberOrNull(row['memory_usage']),
  eventLoopLagMs: numberOrNull(row['event_loop_lag_ms']),
  completed: numberOrNull(row['completed']),
  failed: numberOrNull(row['failed']),
  queues: row['queues'] as string[],
  tasks: row['tasks'] as string[],
  tags: row['tags'] as string[],
  properties: row['properties'] as Record<string, string>,
  startedAt: toDate(row['started_at_ms']),
  beatAgeMs: Math.max(0, Math.round(Number(row['beat_age_ms']))),
})

const toLimit = (row: Row): LimitOverview => ({
  task: String(row['task']),
  key: String(row['key']),
  capacity: numberOrNull(row['capacity']),
  used: Number(row['used']),
})

const toGroup = (row: Row): GroupOverview => ({
  id: String(row['id']),
  name: row['name'] as string | null,
  isStuck: row['is_stuck'] === true,
  ageMs: Math.max(0, Math.round(Number(row['age_ms']))),
  left: upTo(MOST_LEFT, Number(row['open'])),
})

const jobsIn = ({ ready, scheduled, waiting, running }: QueueOverview): number =>
  ready.count + scheduled.count + waiting.count + running.count

const byBusiness = (a: QueueOverview, b: QueueOverview): number =>
  jobsIn(b) - jobsIn(a) || (a.name < b.name ? -1 : 1)
