/**
 * The invariants as questions to Postgres: each answers with what does not hold, from one snapshot. Every function leaves the
 * invariants whole when it commits, so they may be asked of a live system. `@page` is the table that a question goes
 * through, or a stretch of it: `audit` asks about all of it at once, `doctor` page by page.
 */
import { asText } from './times.ts'

/** Tables that grow without bound; all of them have a key `id`. */
export type PagedTable = 'jobs' | 'finished_jobs' | 'groups' | 'workflows' | 'lanes'

/** What mends a finding, see `repair.ts`. */
export type RepairKind =
  | 'cancel'
  | 'due'
  | 'group'
  | 'head'
  | 'lease'
  | 'limit'
  | 'slots of no limit'
  | 'waiting'
  | 'workflow'

/** What questions go by. */
export interface QuestionOptions {
  /** Every job that was enqueued, and no other. */
  enqueued?: readonly string[] | undefined
  isDrained?: boolean | undefined
  graceMs: number
}

type Row = Record<string, unknown>

export interface Question {
  invariant: number
  /** What it goes through; without it, it is asked once for the whole. */
  over?: PagedTable
  /** `audit`: needs to know what was enqueued. `live`: is about duties of the upkeep and the relay. Default: both. */
  only?: 'audit' | 'live'
  /** Rows of (problem text, job_id uuid), and the subject of its repair where that is not the job. */
  sql: string
  /** Which of the rows are findings, where SQL cannot tell. Default: all. */
  keep?: (rows: Row[]) => Row[]
  /** Which of the options are its parameters. */
  values?: (options: QuestionOptions) => unknown[]
  repair?: RepairKind
  /** What a person can do about it, where no repair is safe. */
  advice?: string
}

const RESTORE =
  'nothing of longshore writes this: look for who else writes to these tables, and compare with a backup'

export const QUESTIONS: readonly Question[] = [
  {
    // Every acknowledged enqueue ends in a terminal state once the system drains; no job runs that was not enqueued.
    invariant: 1,
    only: 'audit',
    values: options => [options.enqueued ?? null, options.isDrained ?? false],
    sql: `
      with known as materialized (
        select id from longshore.jobs union all select id from longshore.finished_jobs
      ), enqueued as materialized (
        select id from unnest($1::uuid[]) as e(id)
      )
      select 'it was enqueued and is nowhere' as problem, id as job_id
      from enqueued where id not in (select id from known)
      union all
      select 'nobody enqueued it', id
      from known where $1::uuid[] is not null and id not in (select id from enqueued)
      union all
      select 'nothing is left to do, and it is ' || state, id from longshore.jobs where $2::boolean`,
  },
  {
    // The leader makes due jobs ready.
    invariant: 1,
    over: 'jobs',
    only: 'live',
    repair: 'due',
    values: options => [options.graceMs],
    sql: `
      select 'it was due at ' || ${asText('longshore.run_at_of(j.score)')} || ', and is still scheduled' as problem,
        j.id as job_id, 'all' as subject
      from @page j
      where j.state = 'scheduled' and longshore.run_at_ms_of(j.score) < extract(epoch from clock_timestamp()) * 1000 - $1::int`,
  },
  {
    // Only legal states, and a terminal state stays: what has ended is not among the unfinished.
    invariant: 2,
    over: 'jobs',
    advice: `${RESTORE}; longshore.cancel(array['<id>']::uuid[]) ends it for good`,
    sql: `
      select 'it is ' || j.state || ', and has ended as ' || f.state as problem, j.id as job_id
      from @page j join longshore.finished_jobs f on f.id = j.id
      union all
      select 'it is among the unfinished as ' || j.state, j.id from @page j
      where j.state not in ('waiting', 'scheduled', 'ready', 'running')
      union all
      select 'its lane ' || j.lane || ' does not exist', j.id from @page j
      where not exists (select from longshore.lanes l where l.id = j.lane offset 0)`,
  },
  {
    invariant: 2,
    over: 'finished_jobs',
    advice: RESTORE,
    sql: `
      select 'it is in the history as ' || f.state as problem, f.id as job_id from @page f
      where f.state not in ('succeeded', 'failed', 'cancelled', 'dependency_failed')
      union all
      select 'it succeeded and never ran', f.id from @page f
      where f.state = 'succeeded' and (f.worker_id is null or f.started_at is null or f.attempts < 1)
      union all
      select 'its lane ' || f.lane || ' does not exist, so its task is not known', f.id from @page f
      where not exists (select from longshore.lanes l where l.id = f.lane offset 0)`,
  },
  {
    // A lane with a key stands below one that exists, and claims are led to none that does not.
    invariant: 2,
    over: 'lanes',
    advice: RESTORE,
    sql: `
      select format('lane %s (task %s, key %L) is below lane %s, which does not exist', l.id, l.task, l.concurrency_key, l.parent) as problem,
        null::uuid as job_id
      from @page l
      where l.parent is not null and not exists (select from longshore.lanes p where p.id = l.parent offset 0)`,
  },
  {
    invariant: 2,
    advice: RESTORE,
    sql: `
      select format('claims are led to lane %s, which does not exist', h.lane) as problem, null::uuid as job_id
      from longshore.lane_heads h where not exists (select from longshore.lanes l where l.id = h.lane offset 0)`,
  },
  {
    // Lease tokens strictly grow, and at most one completion is accepted for each (job, token).
    invariant: 3,
    over: 'jobs',
    advice: `${RESTORE}; if Postgres was restored, raise the sequence lease_tokens above the highest token`,
    sql: `
      select 'it runs with token ' || j.lease_token || ', and ended with token ' || f.lease_token as problem, j.id as job_id
      from @page j join longshore.finished_jobs f on f.id = j.id
      where j.state = 'running' and j.lease_token <= f.lease_token
      union all
      select 'token ' || j.lease_token || ' was never drawn: the last is ' || s.last_value, j.id
      from longshore.lease_tokens s, @page j
      where j.lease_token > case when s.is_called then s.last_value else 0 end`,
  },
  {
    invariant: 3,
    over: 'finished_jobs',
    advice: `${RESTORE}; if Postgres was restored, raise the sequence lease_tokens above the highest token`,
    sql: `
      select 'token ' || f.lease_token || ' has ended it ' || count(*) || ' times' as problem, f.id as job_id
      from @page f group by f.id, f.lease_token having count(*) > 1
      union all
      select 'token ' || f.lease_token || ' was never drawn: the last is ' || s.last_value, f.id
      from longshore.lease_tokens s, @page f
      where f.lease_token > case when s.is_called then s.last_value else 0 end`,
  },
  {
    invariant: 3,
    advice: RESTORE,
    sql: `
      select 'token ' || j.lease_token || ' is held by ' || count(distinct j.worker_id) || ' workers' as problem,
        null::uuid as job_id
      from longshore.jobs j where j.state = 'running' group by j.lease_token having count(distinct j.worker_id) > 1`,
  },
  {
    // running ⇔ worker, token and start are set.
    invariant: 4,
    over: 'jobs',
    advice: RESTORE,
    sql: `
      select format('it is %s with worker %s, token %s, start %s', j.state, coalesce(j.worker_id::text, 'none'), j.lease_token,
        coalesce(${asText('j.started_at')}, 'none')) as problem, j.id as job_id
      from @page j
      where case when j.state = 'running' then j.worker_id is null or j.started_at is null or j.lease_token <= 0
        else j.worker_id is not null or j.started_at is not null end`,
  },
  {
    // For each slot group: used = running jobs that name it, and no more than it may hold unless a lowered limit drains.
    invariant: 5,
    repair: 'limit',
    sql: `
      with held as (
        select l.task, '' as key, j.slot as number, count(*) as jobs
        from longshore.jobs j join longshore.lanes l on l.id = j.lane
        where j.slot is not null group by 1, 2, 3
        union all
        select l.task, l.concurrency_key, j.key_slot, count(*)
        from longshore.jobs j join longshore.lanes l on l.id = j.lane
        where j.key_slot is not null group by 1, 2, 3
      ), slots as (
        select k.task, k.key, g.* from longshore.slot_groups g join longshore.limits k on k.id = g.limit_id
        where g.era = (select max(e.era) from longshore.slot_groups e where e.limit_id = g.limit_id)
      )
      select format('slot group %s of the limit of task %s, key %L: %s, held by %s running jobs',
        number, task, key, coalesce('used ' || g.used, 'it does not exist'), coalesce(h.jobs, 0)) as problem,
        null::uuid as job_id, json_build_array(task, key)::text as subject
      from slots g full join held h using (task, key, number)
      where g.used is distinct from coalesce(h.jobs, 0)
      union all
      select format('slot group %s of limit %s: used %s of %s', number, limit_id, used, capacity), null,
        json_build_array(task, key)::text
      from slots where used < 0 or (used > capacity and not is_draining)`,
  },
  {
    // The slot groups of a limit hold what the limit allows, and a limit is what its task declares.
    invariant: 5,
    repair: 'limit',
    sql: `
      select format('limit %s (task %s, key %L) allows %s, its slot groups hold %s', k.id, k.task, k.key, k.capacity,
        coalesce(sum(g.capacity), 0)) as problem, null::uuid as job_id, json_build_array(k.task, k.key)::text as subject
      from longshore.limits k left join longshore.slot_groups g on g.limit_id = k.id
        and g.era = (select max(e.era) from longshore.slot_groups e where e.limit_id = k.id)
      where k.capacity is not null
      group by k.id having k.capacity is distinct from sum(g.capacity)
      union all
      select format('limit %s (task %s, key %L) allows %s, its task says %s', k.id, k.task, k.key,
        coalesce(k.capacity::text, 'any'), coalesce(s.capacity::text, 'any')), null, json_build_array(k.task, k.key)::text
      from longshore.limits k
      join longshore.tasks t on t.name = k.task
      cross join lateral (
        select case when k.key = '' then t.concurrency else t.concurrency_per_key end as capacity
      ) s
      where k.capacity is distinct from s.capacity
        -- Limits of keys are changed a page after another.
        and not (k.key <> '' and exists (select from longshore.limit_changes c where c.task = k.task))`,
  },
  {
    invariant: 5,
    repair: 'slots of no limit',
    sql: `
      select format('slot group %s names limit %s, which does not exist', number, limit_id) as problem, null::uuid as job_id,
        limit_id::text as subject
      from longshore.slot_groups where limit_id not in (select id from longshore.limits)`,
  },
  {
    // Every running job under a limit has a slot of it: claims take one, and setting a first limit counts running jobs.
    invariant: 5,
    over: 'jobs',
    repair: 'limit',
    sql: `
      select format('it runs without a slot of limit %s (task %s, key %L)', k.id, k.task, k.key) as problem, j.id as job_id,
        json_build_array(k.task, k.key)::text as subject
      from @page j
      join longshore.lanes l on l.id = j.lane
      join longshore.limits k on k.task = l.task and k.key in ('', l.concurrency_key) and k.capacity is not null
      where j.state = 'running' and case when k.key = '' then j.slot is null else j.key_slot is null end`,
  },
  {
    // A closed limit has no room: only a run that frees a slot opens it, and there may be none that does.
    invariant: 5,
    repair: 'limit',
    sql: `
      select format('limit %s (task %s, key %L) is closed, and %s of %s slots are used', k.id, k.task, k.key,
        coalesce(sum(g.used), 0), coalesce(k.capacity::text, 'any')) as problem, null::uuid as job_id,
        json_build_array(k.task, k.key)::text as subject
      from longshore.limits k left join longshore.slot_groups g on g.limit_id = k.id
      where k.is_full
      group by k.id having coalesce(sum(g.used), 0) < coalesce(k.capacity, 2147483647)`,
  },
  {
    // A lane with a key that has ready jobs is known to claims, by a score that is not worse than its best job's: open,
    // or closed by a limit of its own that will open again.
    invariant: 5,
    over: 'lanes',
    repair: 'head',
    sql: `
      select format('lane %s (task %s, key %L) has ready jobs, the best at %s; no claim would look at it', l.id, l.task,
        l.concurrency_key, best.score) as problem, best.id as job_id, l.id::text as subject
      from @page l
      cross join lateral (
        select j.id, j.score from longshore.jobs j where j.lane = l.id and j.state = 'ready' order by j.score, j.id limit 1
      ) best
      where l.concurrency_key <> '' and not exists (
        select from longshore.lane_heads h
        left join longshore.limits k on k.id = h.closed_by
        where h.lane = l.id and h.parent = l.parent and h.score <= best.score
          and (h.closed_by is null or (k.is_full and k.task = l.task and k.key = l.concurrency_key))
      )`,
  },
  {
    // `pending` = open parents, plus one while it waits for its turn; nothing waits for nothing.
    invariant: 6,
    over: 'jobs',
    repair: 'waiting',
    sql: `
      select format('it is %s and waits for %s things, of which %s are open', state, pending, open) as problem, id as job_id
      from (
        select j.id, j.state, coalesce(j.pending, 0) as pending,
          o.parents + case when j.has_turn is false then 1 else 0 end as open
        from @page j
        cross join lateral (
          select count(*) as parents from longshore.edges e
          where e.child = j.id and exists (select from longshore.jobs p where p.id = e.parent offset 0)
        ) o
      ) counted
      where pending <> open or (state = 'waiting') <> (open > 0)`,
  },
  {
    // Descendants of a job that did not succeed follow their edge's policy.
    invariant: 7,
    over: 'jobs',
    repair: 'waiting',
    sql: `
      select format('it is %s, although job %s, which it was to run after (%s), has ended as %s',
        j.state, p.id, e.policy, p.state) as problem, j.id as job_id
      from @page j join longshore.edges e on e.child = j.id join longshore.finished_jobs p on p.id = e.parent
      where p.state <> 'succeeded' and e.policy <> 'run'
        and not exists (select from longshore.jobs o where o.id = e.parent offset 0)`,
  },
  {
    invariant: 7,
    over: 'finished_jobs',
    advice: 'it has run already, so nothing can be undone: look at what it did',
    sql: `
      select format('it is %s, although job %s, which it was to run after (%s), has ended as %s',
        f.state, p.id, e.policy, p.state) as problem, f.id as job_id
      from @page f join longshore.edges e on e.child = f.id join longshore.finished_jobs p on p.id = e.parent
      where p.state <> 'succeeded' and e.policy <> 'run' and f.state not in ('dependency_failed', 'cancelled')
      union all
      -- What its history does not tell any more may have failed.
      select 'it ended as dependency_failed, and every job that it was to run after has succeeded', f.id
      from @page f where f.state = 'dependency_failed' and not exists (
        select from longshore.edges e left join longshore.finished_jobs p on p.id = e.parent
        where e.child = f.id and e.policy <> 'run' and p.state is distinct from 'succeeded'
          and not exists (select from longshore.jobs o where o.id = e.parent offset 0))`,
  },
  {
    // Edges stay within a group.
    invariant: 7,
    over: 'jobs',
    advice: RESTORE,
    sql: `
      select format('it runs after job %s of group %s, and belongs to group %s', p.id, coalesce(p.group_id::text, 'none'),
        coalesce(j.group_id::text, 'none')) as problem, j.id as job_id
      from @page j
      join longshore.edges e on e.child = j.id
      cross join lateral (
        select o.id, o.group_id from longshore.jobs o where o.id = e.parent
        union all
        select f.id, f.group_id from longshore.finished_jobs f where f.id = e.parent
      ) p
      where p.group_id is distinct from j.group_id`,
  },
  {
    invariant: 7,
    over: 'groups',
    advice: 'none of them can ever start: cancel one of them, or the group',
    keep: inCircles,
    sql: `
      select 'it waits in a circle' as problem, w.id as job_id, e.parent
      from @page g
      join longshore.jobs w on w.group_id = g.id
      join longshore.edges e on e.child = w.id
      join longshore.jobs p on p.id = e.parent
      where g.finished_at is null and w.state = 'waiting'`,
  },
  {
    invariant: 7,
    over: 'jobs',
    repair: 'group',
    sql: `
      select case when g.id is null then format('its group %s does not exist', j.group_id)
        else format('group %s has ended as %s, and it is %s', g.id, g.end_state, j.state) end as problem, j.id as job_id,
        j.group_id::text as subject
      from @page j
      left join lateral (select g.id, g.finished_at, g.end_state from longshore.groups g where g.id = j.group_id offset 0) g on true
      where j.group_id is not null and (g.id is null or g.finished_at is not null)`,
  },
  {
    // A group whose last job has ended is closed, by the worker that ended it or by the upkeep.
    invariant: 7,
    over: 'groups',
    only: 'live',
    repair: 'group',
    values: options => [options.graceMs],
    sql: `
      select format('group %s has no unfinished job, and nobody has closed it', g.id) as problem, null::uuid as job_id,
        g.id::text as subject
      from @page g
      where g.finished_at is null and g.created_at < clock_timestamp() - $1::int * interval '1 millisecond'
        and not exists (select from longshore.jobs j where j.group_id = g.id offset 0)
        and not exists (
          select from longshore.finished_jobs f
          where f.group_id = g.id and f.finished_at > clock_timestamp() - $1::int * interval '1 millisecond')`,
  },
  {
    // Per workflow one job has the turn, the one with the lowest number.
    invariant: 9,
    over: 'jobs',
    repair: 'waiting',
    sql: `
      select format('workflow %s: it has number %s and no turn, and is the first', coalesce(w.key, '?'), j.workflow_seq)
        as problem, j.id as job_id
      from @page j
      left join lateral (select w.key, w.halted_by from longshore.workflows w where w.id = j.workflow offset 0) w on true
      where j.workflow is not null and not j.has_turn and w.halted_by is null
        and not exists (
          select from longshore.jobs o where o.workflow = j.workflow and o.workflow_seq < j.workflow_seq offset 0)
      union all
      select format('workflow %s: it has the turn, and number %s stands before it', j.workflow, o.workflow_seq), j.id
      from @page j
      cross join lateral (
        select o.workflow_seq from longshore.jobs o
        where o.workflow = j.workflow and o.workflow_seq < j.workflow_seq order by o.workflow_seq limit 1
      ) o
      where j.has_turn
      union all
      select format('its workflow %s does not exist', j.workflow), j.id
      from @page j
      where j.workflow is not null and not exists (select from longshore.workflows w where w.id = j.workflow offset 0)`,
  },
  {
    invariant: 9,
    over: 'workflows',
    repair: 'workflow',
    sql: `
      select format('workflow %s has no jobs, and nobody has removed it', w.key) as problem, null::uuid as job_id,
        w.id::text as subject
      from @page w
      where w.halted_by is null and not exists (select from longshore.jobs j where j.workflow = w.id offset 0)`,
  },
  {
    // Runs of a workflow follow each other in the order of the numbers.
    invariant: 9,
    advice: 'they have run already, so nothing can be undone: look at what they did',
    sql: `
      select format('workflow %s: number %s started at %s, before number %s ended at %s',
        r.workflow, r.workflow_seq, r.started_at, r.earlier_seq, r.earlier_end) as problem, r.id as job_id
      from (
        select r.*, lag(r.workflow_seq) over numbers as earlier_seq, lag(r.finished_at) over numbers as earlier_end
        from (
          select id, workflow, workflow_seq, started_at, finished_at from longshore.finished_jobs where workflow is not null
          union all
          select id, workflow, workflow_seq, started_at, null from longshore.jobs where workflow is not null
        ) r
        where r.started_at is not null
        window numbers as (partition by r.workflow order by r.workflow_seq)
      ) r
      where r.started_at < r.earlier_end`,
  },
  {
    // A cancelled job never starts later.
    invariant: 8,
    over: 'finished_jobs',
    advice: 'it has run already, so nothing can be undone: look at what it did',
    sql: `
      select 'it was cancelled at ' || f.finished_at || ' and started at ' || r.started_at as problem, f.id as job_id
      from @page f
      cross join lateral (
        select j.started_at from longshore.jobs j where j.id = f.id
        union all
        select o.started_at from longshore.finished_jobs o where o.id = f.id
      ) r
      where f.state = 'cancelled' and r.started_at > f.finished_at`,
  },
  {
    invariant: 8,
    over: 'jobs',
    repair: 'cancel',
    sql: `
      select 'it was cancelled while it ran, and is ' || j.state as problem, j.id as job_id
      from @page j where j.is_cancelled and j.state <> 'running'`,
  },
  ...(['jobs', 'finished_jobs'] as const).map(
    (over): Question => ({
      // A cancel of a group locks its jobs and then writes its time: jobs that run then have started before.
      invariant: 8,
      over,
      advice:
        'it has started already, so nothing can be undone: cancel it if it still runs, and look at what it did',
      sql: `
        select format('its group %s was cancelled at %s, and it started at %s', g.id, g.cancelled_at, j.started_at) as problem,
          j.id as job_id
        from @page j join longshore.groups g on g.id = j.group_id
        where g.cancelled_at < j.started_at`,
    }),
  ),
  {
    // A relay applies changes to Redis within moments.
    invariant: 12,
    only: 'live',
    advice:
      'nobody reads the outbox: start `longshore relay --redis-url …`, or look at the log of the one that runs',
    values: options => [options.graceMs],
    sql: `
      select format('the oldest row of the outbox, %s, is from %s', o.id, o.created_at) as problem, null::uuid as job_id,
        o.id::text as subject
      from (select o.id, o.created_at from longshore.outbox o order by o.id limit 1) o, longshore.settings s
      where s.dispatch = 'redis' and o.created_at < clock_timestamp() - $1::int * interval '1 millisecond'`,
  },
  {
    // No job runs under a worker that is not there.
    invariant: 13,
    over: 'jobs',
    repair: 'lease',
    sql: `
      select format('it runs under worker %s, which does not exist', j.worker_id) as problem, j.id as job_id,
        j.worker_id::text as subject
      from @page j
      where j.state = 'running' and not exists (select from longshore.workers w where w.id = j.worker_id offset 0)`,
  },
  {
    // No job runs past its worker's lease plus grace: rescue is alive.
    invariant: 13,
    over: 'jobs',
    advice: 'nobody rescues: start a worker or `longshore relay`, or look at the log of the one that leads',
    values: options => [options.graceMs],
    sql: `
      select format('it runs under worker %s, whose lease ran out at %s', w.id, least(w.expires_at, w.dead_at)) as problem,
        j.id as job_id
      from @page j join longshore.workers w on w.id = j.worker_id
      where j.state = 'running'
        and least(w.expires_at, w.dead_at) < clock_timestamp() - $1::int * interval '1 millisecond'`,
  },
  ...(['jobs', 'finished_jobs'] as const).map(
    (over): Question => ({
      // attempts ≤ max, rescues ≤ max. A task's limit of rescues counts for jobs that were made under it.
      invariant: 14,
      over,
      advice: 'cancel it if it must not run again; change() gives it more attempts',
      sql: `
        select format('%s attempts of %s', j.attempts, j.max_attempts) as problem, j.id as job_id
        from @page j where j.attempts > j.max_attempts or j.attempts < 0
        union all
        select format('%s rescues of %s', j.rescues, coalesce(t.max_rescues, 10)), j.id
        from @page j
        join longshore.lanes l on l.id = j.lane
        left join longshore.tasks t on t.name = l.task
        where j.rescues > coalesce(t.max_rescues, 10) and j.created_at >= coalesce(t.registered_at, '-infinity')`,
    }),
  ),
]

/** Of rows that are edges (parent, job_id), one for each job of a circle: what is left when jobs without parents, or
 * without children, are taken away again and again. */
function inCircles(edges: Row[]): Row[] {
  const left = withoutEnds(withoutEnds(edges, 'parent', 'job_id'), 'job_id', 'parent')
  return [...new Map(left.map(edge => [edge['job_id'], edge])).values()]
}

/** Takes away the edges that begin at a job to which none leads, until there are no more. */
function withoutEnds(edges: Row[], from: string, to: string): Row[] {
  const leading = new Map<unknown, number>()
  const beginning = new Map<unknown, Row[]>()
  for (const edge of edges) {
    leading.set(edge[to], (leading.get(edge[to]) ?? 0) + 1)
    const others = beginning.get(edge[from])
    if (others) others.push(edge)
    else beginning.set(edge[from], [edge])
  }
  const free = [...beginning.keys()].filter(id => !leading.has(id))
  for (let id = free.pop(); id !== undefined; id = free.pop()) {
    for (const edge of beginning.get(id) ?? []) {
      const others = (leading.get(edge[to]) ?? 0) - 1
      leading.set(edge[to], others)
      if (others === 0) free.push(edge[to])
    }
    beginning.delete(id)
  }
  return [...beginning.values()].flat()
}
