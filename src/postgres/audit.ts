/**
 * The verb *audit*: asks Postgres whether what longshore promises holds right now. One question for each invariant, each
 * answered from one snapshot, so it may be asked of a live system: every function leaves the invariants whole when it
 * commits. Reads jobs and history once for each question.
 */
import type { JobId } from '../job/job-id.ts'
import type { Queryable } from '../job/queryable.ts'
import { checkSchemaName, DEFAULT_SCHEMA, inSchema } from './schema-name.ts'

export interface Violation {
  /** The number of the invariant that does not hold. */
  invariant: number
  /** What is wrong, with the figures. */
  problem: string
  /** The job that shows it, where it is one job. */
  jobId?: JobId
}

export interface AuditOptions {
  /** Every job that was enqueued, and no other: then none may be missing, and none may be there that is not named. */
  enqueued?: readonly string[]
  /** Nothing is left to do: then every job must have ended. Default false. */
  isDrained?: boolean
  /** How long after its worker's lease ran out a job may wait for its rescue. Default 10 seconds. */
  graceMs?: number
}

interface Question {
  invariant: number
  /** Rows of (problem text, job_id uuid). */
  sql: string
  /** Which of the options are its parameters. */
  values?: (options: AuditOptions) => unknown[]
}

const MOST_VIOLATIONS = 100

/** What does not hold, at most 100 findings for each invariant; empty when everything is in order. */
export async function audit(
  db: Queryable,
  schema: string = DEFAULT_SCHEMA,
  options: AuditOptions = {},
): Promise<Violation[]> {
  checkSchemaName(schema)
  const found: Violation[] = []
  for (const { invariant, sql, values } of QUESTIONS) {
    // Materialized: for the first few of many the planner would compare every job with every other.
    const text = inSchema(
      schema,
      `with found as materialized (${sql}) select problem, job_id from found limit ${MOST_VIOLATIONS}`,
    )
    const { rows } = await db.query(text, values?.(options) ?? [])
    for (const row of rows) {
      const jobId = row['job_id'] as JobId | null
      found.push({ invariant, problem: String(row['problem']), ...(jobId === null ? {} : { jobId }) })
    }
  }
  return found
}

const QUESTIONS: readonly Question[] = [
  {
    // Every acknowledged enqueue ends in a terminal state once the system drains; no job runs that nobody enqueued.
    invariant: 1,
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
    // Only legal states, and a terminal state stays: what has ended is not among the unfinished.
    invariant: 2,
    sql: `
      select 'it is ' || j.state || ', and has ended as ' || f.state as problem, j.id as job_id
      from longshore.jobs j join longshore.finished_jobs f on f.id = j.id
      union all
      select 'it is among the unfinished as ' || state, id from longshore.jobs
      where state not in ('waiting', 'scheduled', 'ready', 'running')
      union all
      select 'it is in the history as ' || state, id from longshore.finished_jobs
      where state not in ('succeeded', 'failed', 'cancelled', 'dependency_failed')
      union all
      select 'it succeeded and never ran', id from longshore.finished_jobs
      where state = 'succeeded' and (worker_id is null or started_at is null or attempts < 1)
      union all
      select 'its lane ' || lane || ' does not exist', id from longshore.jobs
      where lane not in (select id from longshore.lanes)`,
  },
  {
    // Lease tokens strictly grow, and at most one completion is accepted for each (job, token).
    invariant: 3,
    sql: `
      select 'token ' || lease_token || ' has ended it ' || count(*) || ' times' as problem, id as job_id
      from longshore.finished_jobs group by id, lease_token having count(*) > 1
      union all
      select 'it runs with token ' || j.lease_token || ', and ended with token ' || f.lease_token, j.id
      from longshore.jobs j join longshore.finished_jobs f on f.id = j.id
      where j.state = 'running' and j.lease_token <= f.lease_token
      union all
      select 'token ' || h.lease_token || ' was never drawn: the last is ' || s.last_value, h.id
      from longshore.lease_tokens s,
        (select id, lease_token from longshore.jobs union all select id, lease_token from longshore.finished_jobs) h
      where h.lease_token > case when s.is_called then s.last_value else 0 end
      union all
      select 'token ' || lease_token || ' is held by ' || count(distinct worker_id) || ' workers', null
      from longshore.jobs where state = 'running' group by lease_token having count(distinct worker_id) > 1`,
  },
  {
    // running ⇔ worker, token and start are set.
    invariant: 4,
    sql: `
      select format('it is %s with worker %s, token %s, start %s', state, coalesce(worker_id::text, 'none'), lease_token,
        coalesce(started_at::text, 'none')) as problem, id as job_id
      from longshore.jobs
      where case when state = 'running' then worker_id is null or started_at is null or lease_token <= 0
        else worker_id is not null or started_at is not null end`,
  },
  {
    // For each slot group: used = running jobs that name it, and no more than it may hold unless a lowered limit drains.
    invariant: 5,
    sql: `
      with held as (
        select k.id as limit_id, j.slot as number, count(*) as jobs
        from longshore.jobs j
        join longshore.lanes l on l.id = j.lane
        left join longshore.limits k on k.task = l.task and k.key = ''
        where j.slot is not null group by 1, 2
        union all
        select k.id, j.key_slot, count(*)
        from longshore.jobs j
        join longshore.lanes l on l.id = j.lane
        left join longshore.limits k on k.task = l.task and k.key = l.concurrency_key and k.key <> ''
        where j.key_slot is not null group by 1, 2
      )
      select format('slot group %s of limit %s (task %s, key %L): used %s, held by %s running jobs',
        coalesce(g.number, h.number), coalesce(g.limit_id, h.limit_id), k.task, k.key, g.used, coalesce(h.jobs, 0))
        as problem, null::uuid as job_id
      from longshore.slot_groups g
      full join held h on h.limit_id = g.limit_id and h.number = g.number
      left join longshore.limits k on k.id = coalesce(g.limit_id, h.limit_id)
      where g.used is distinct from coalesce(h.jobs, 0)
      union all
      select format('slot group %s of limit %s: used %s of %s', number, limit_id, used, capacity), null
      from longshore.slot_groups where used < 0 or (used > capacity and not is_draining)`,
  },
  {
    // The slot groups of a limit hold what the limit allows, and a limit is what its task declares.
    invariant: 5,
    sql: `
      select format('limit %s (task %s, key %L) allows %s, its slot groups hold %s', k.id, k.task, k.key, k.capacity,
        sum(g.capacity)) as problem, null::uuid as job_id
      from longshore.limits k left join longshore.slot_groups g on g.limit_id = k.id
      where k.capacity is not null
      group by k.id having k.capacity is distinct from sum(g.capacity)
      union all
      select format('limit %s (task %s, key %L) allows %s, its task says %s', k.id, k.task, k.key,
        coalesce(k.capacity::text, 'any'), coalesce(s.capacity::text, 'any')), null
      from longshore.limits k
      join longshore.tasks t on t.name = k.task
      cross join lateral (
        select case when k.key = '' then t.concurrency else t.concurrency_per_key end as capacity
      ) s
      where k.capacity is distinct from s.capacity
      union all
      select format('slot group %s names limit %s, which does not exist', number, limit_id), null
      from longshore.slot_groups where limit_id not in (select id from longshore.limits)`,
  },
  {
    // Whatever runs under a limit holds a slot of it: claims take one, and who sets a first limit counts what runs.
    invariant: 5,
    sql: `
      select format('it runs without a slot of limit %s (task %s, key %L)', k.id, k.task, k.key) as problem, j.id as job_id
      from longshore.jobs j
      join longshore.lanes l on l.id = j.lane
      join longshore.limits k on k.task = l.task and k.capacity is not null
      where j.state = 'running'
        and ((k.key = '' and j.slot is null)
          or (k.key <> '' and k.key = l.concurrency_key and j.key_slot is null))`,
  },
  {
    // A limit that is closed has no room: somebody would have to free a slot to open it, and nobody would.
    invariant: 5,
    sql: `
      select format('limit %s (task %s, key %L) is closed, and %s of %s slots are used', k.id, k.task, k.key,
        coalesce(sum(g.used), 0), coalesce(k.capacity::text, 'any')) as problem, null::uuid as job_id
      from longshore.limits k left join longshore.slot_groups g on g.limit_id = k.id
      where k.is_full
      group by k.id having coalesce(sum(g.used), 0) < coalesce(k.capacity, 2147483647)`,
  },
  {
    // A lane with a key that has ready jobs is known to claims, by a score that is not worse than its best job's: open,
    // or closed by a limit of its own that somebody will open.
    invariant: 5,
    sql: `
      select format('lane %s (task %s, key %L) has ready jobs, the best at %s; no claim would look at it', l.id, l.task,
        l.concurrency_key, best.score) as problem, best.id as job_id
      from longshore.lanes l
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
    sql: `
      with open as materialized (
        select e.child, count(*) as parents from longshore.edges e join longshore.jobs p on p.id = e.parent group by e.child
      ), should as (
        select j.id, j.state, coalesce(j.pending, 0) as pending,
          coalesce(o.parents, 0) + case when j.has_turn is false then 1 else 0 end as open
        from longshore.jobs j left join open o on o.child = j.id
      )
      select format('it is %s and waits for %s things, of which %s are open', state, pending, open) as problem, id as job_id
      from should where pending <> open or (state = 'waiting') <> (open > 0)`,
  },
  {
    // Descendants of a job that did not succeed follow their edge's policy; the graph has no circle, and stays in its group.
    invariant: 7,
    sql: `
      with recursive ended as materialized (
        select id, state, group_id from longshore.finished_jobs where group_id is not null
      ), every as materialized (
        select id, state, group_id from ended
        union all
        select id, state, group_id from longshore.jobs where group_id is not null
      ), links as materialized (
        select e.parent, e.child, e.policy, p.state as parent_state, p.group_id as parent_group, c.state, c.group_id
        from longshore.edges e left join every p on p.id = e.parent left join every c on c.id = e.child
      ), reached(id) as (
        select j.id from longshore.jobs j
        where not exists (select from longshore.edges e join longshore.jobs p on p.id = e.parent where e.child = j.id)
        union
        -- One by one: a chain would read all edges for each of its jobs.
        select e.child from reached r
        cross join lateral (select e.child from longshore.edges e where e.parent = r.id offset 0) e
      )
      select format('it is %s, although job %s, which it was to run after (%s), has ended as %s',
        state, parent, policy, parent_state) as problem, child as job_id
      from links
      where parent_state in ('failed', 'cancelled', 'dependency_failed') and policy <> 'run'
        and state not in ('dependency_failed', 'cancelled')
      union all
      select 'it ended as dependency_failed, and every job that it was to run after has succeeded', c.id
      from ended c
      left join (
        select distinct child from links where policy <> 'run' and parent_state is distinct from 'succeeded'
      ) cause on cause.child = c.id
      where c.state = 'dependency_failed' and cause.child is null
      union all
      select format('it runs after job %s of group %s, and belongs to group %s', parent, parent_group, group_id), child
      from links where parent_group <> group_id
      union all
      select 'it waits in a circle', w.id
      from longshore.jobs w
      where w.state = 'waiting' and not exists (select from reached r where r.id = w.id)
      union all
      select format('group %s has ended as %s, and it is %s', g.id, g.end_state, j.state), j.id
      from longshore.groups g join longshore.jobs j on j.group_id = g.id where g.finished_at is not null
      union all
      select format('its group %s does not exist', j.group_id), j.id
      from longshore.jobs j
      where j.group_id is not null and not exists (select from longshore.groups g where g.id = j.group_id)`,
  },
  {
    // Per workflow one job has the turn, the one with the lowest number; runs follow each other in the order of the numbers.
    invariant: 9,
    sql: `
      select format('workflow %s: it has number %s and %s, and is the first', coalesce(w.key, '?'), j.workflow_seq,
        case when j.has_turn then 'the turn' else 'no turn' end) as problem, j.id as job_id
      from longshore.jobs j left join longshore.workflows w on w.id = j.workflow
      where j.workflow is not null and not j.has_turn and w.halted_by is null
        and not exists (select from longshore.jobs o where o.workflow = j.workflow and o.workflow_seq < j.workflow_seq)
      union all
      select format('workflow %s: it has the turn, and number %s stands before it', j.workflow, o.workflow_seq), j.id
      from longshore.jobs j
      join longshore.jobs o on o.workflow = j.workflow and o.workflow_seq < j.workflow_seq
      where j.has_turn
      union all
      select format('its workflow %s does not exist', j.workflow), j.id
      from longshore.jobs j
      where j.workflow is not null and not exists (select from longshore.workflows w where w.id = j.workflow)
      union all
      select format('workflow %s has no jobs, and nobody has removed it', w.key), null
      from longshore.workflows w
      where w.halted_by is null and not exists (select from longshore.jobs j where j.workflow = w.id)
      union all
      select format('workflow %s: number %s started at %s, before number %s ended at %s',
        r.workflow, r.workflow_seq, r.started_at, r.earlier_seq, r.earlier_end), r.id
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
    sql: `
      select 'it was cancelled at ' || f.finished_at || ' and started at ' || r.started_at as problem, f.id as job_id
      from longshore.finished_jobs f
      join (
        select id, started_at from longshore.jobs union all select id, started_at from longshore.finished_jobs
      ) r on r.id = f.id and r.started_at > f.finished_at
      where f.state = 'cancelled'
      union all
      select 'it was cancelled while it ran, and is ' || state, id
      from longshore.jobs where is_cancelled and state <> 'running'`,
  },
  {
    // No job runs past its worker's lease plus grace: rescue is alive.
    invariant: 13,
    values: options => [options.graceMs ?? 10_000],
    sql: `
      select case when w.id is null then format('it runs under worker %s, which does not exist', j.worker_id)
        else format('it runs under worker %s, whose lease ran out at %s', w.id, w.expires_at) end as problem,
        j.id as job_id
      from longshore.jobs j left join longshore.workers w on w.id = j.worker_id
      where j.state = 'running'
        and (w.id is null or w.expires_at < clock_timestamp() - $1::int * interval '1 millisecond')`,
  },
  {
    // attempts ≤ max, rescues ≤ max. A task's limit of rescues counts for jobs that were made under it.
    invariant: 14,
    sql: `
      with every as materialized (
        select id, lane, created_at, attempts, max_attempts, rescues from longshore.jobs
        union all
        select id, lane, created_at, attempts, max_attempts, rescues from longshore.finished_jobs
      )
      select format('%s attempts of %s', attempts, max_attempts) as problem, id as job_id
      from every where attempts > max_attempts or attempts < 0
      union all
      select format('%s rescues of %s', e.rescues, coalesce(t.max_rescues, 10)), e.id
      from every e
      join longshore.lanes l on l.id = e.lane
      left join longshore.tasks t on t.name = l.task
      where e.rescues > coalesce(t.max_rescues, 10) and e.created_at >= coalesce(t.registered_at, '-infinity')`,
  },
]
