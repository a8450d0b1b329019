-- For a person with psql: how jobs and groups stand, and what keeps the unfinished ones. Views call no function of the schema:
-- those are dropped and made anew whenever they change. Look at one by id, or at some with limit.

create view longshore.job_status as
select j.id, l.task, l.queue, j.state, j.group_id, w.key as workflow,
  (2047 - (j.score >> 42))::int as priority, to_timestamp((j.score & 4398046511103) / 1000.0) as run_at,
  j.created_at, j.started_at, null::timestamptz as finished_at, j.attempts, j.max_attempts, j.rescues, j.worker_id,
  j.is_cancelled, j.error ->> 'message' as error
from longshore.jobs j
left join longshore.lanes l on l.id = j.lane
left join longshore.workflows w on w.id = j.workflow
union all
-- A workflow is forgotten with its last job, and then what has ended does not know its key any more.
select f.id, l.task, l.queue, f.state, f.group_id, w.key,
  (2047 - (f.score >> 42))::int, to_timestamp((f.score & 4398046511103) / 1000.0),
  f.created_at, f.started_at, f.finished_at, f.attempts, f.max_attempts, f.rescues, f.worker_id,
  f.state = 'cancelled', f.error ->> 'message'
from longshore.finished_jobs f
left join longshore.lanes l on l.id = f.lane
left join longshore.workflows w on w.id = f.workflow;

-- Dispatching from the first claim on: a lease token is never taken back.
create view longshore.group_status as
select g.id, g.name,
  case
    when g.end_state is not null then g.end_state
    when exists (select from longshore.jobs j where j.group_id = g.id and (j.state = 'running' or j.lease_token > 0))
      or exists (select from longshore.finished_jobs f where f.group_id = g.id and f.lease_token > 0)
      or g.succeeded + g.failed > 0
    then 'dispatching'
    else 'queued'
  end as state,
  u.waiting, u.scheduled, u.ready, u.running,
  g.succeeded + e.succeeded as succeeded, g.failed + e.failed as failed, g.cancelled + e.cancelled as cancelled,
  g.dependency_failed + e.dependency_failed as dependency_failed,
  g.created_at, g.cancelled_at, g.finished_at, g.stuck
from longshore.groups g
cross join lateral (
  select count(*) filter (where j.state = 'waiting') as waiting, count(*) filter (where j.state = 'scheduled') as scheduled,
    count(*) filter (where j.state = 'ready') as ready, count(*) filter (where j.state = 'running') as running
  from longshore.jobs j where j.group_id = g.id and g.finished_at is null
) u
cross join lateral (
  select count(*) filter (where f.state = 'succeeded') as succeeded, count(*) filter (where f.state = 'failed') as failed,
    count(*) filter (where f.state = 'cancelled') as cancelled,
    count(*) filter (where f.state = 'dependency_failed') as dependency_failed
  from longshore.finished_jobs f where f.group_id = g.id and g.finished_at is null
) e;

-- Jobs that have not started, and why: the first of the reasons that holds; `longshore explain` tells all of them. What is left
-- out may start at any moment. A part for each state: what keeps a ready job keeps its whole lane, and is asked once for each.
create view longshore.blocked as
select j.id, l.task, l.queue, j.state, j.group_id,
  case
    when p.open > 0 then 'waits for ' || p.open || ' of ' || p.parents || ' jobs, among them ' || p.first
    when j.has_turn then 'waits for ' || j.pending || ', and nothing is open: longshore doctor --repair'
    when w.halted_by is not null then 'its workflow ' || w.key || ' was halted by the failure of job ' || w.halted_by
    when t.id is not null then 'waits for its turn in workflow ' || w.key || ', which job ' || t.id || ' has'
    when w.key is not null then 'waits for its turn in workflow ' || w.key || ', which nobody has: longshore doctor --repair'
    else 'waits for ' || j.pending || ', and nothing is open: longshore doctor --repair'
  end as reason,
  j.created_at
from longshore.jobs j
left join longshore.lanes l on l.id = j.lane
left join longshore.workflows w on w.id = j.workflow
left join longshore.jobs t on t.workflow = j.workflow and t.has_turn
cross join lateral (
  select count(*) as parents, count(o.id) as open, min(o.id::text) as first
  from longshore.edges e left join longshore.jobs o on o.id = e.parent where e.child = j.id
) p
where j.state = 'waiting'
union all
select j.id, l.task, l.queue, j.state, j.group_id,
  case when d.at > now() then 'is due at ' || d.at
    else 'has been due since ' || d.at || ': whoever does the upkeep makes it ready, a worker or longshore relay'
  end,
  j.created_at
from longshore.jobs j
left join longshore.lanes l on l.id = j.lane
cross join lateral (select to_timestamp((j.score & 4398046511103) / 1000.0) as at) d
where j.state = 'scheduled'
union all
select j.id, r.task, r.queue, j.state, j.group_id, r.reason, j.created_at
from (
  select l.id, l.task, l.queue,
    case
      when not exists (
        select from longshore.workers w
        where w.expires_at > now() and w.dead_at is null and l.task = any (w.tasks) and l.queue = any (w.queues)
          and l.tag = any (w.tags) and l.constraint_tag = any (w.constraint_tags)
      ) then 'no live worker ' || (
        select case
            when count(*) = 0 then 'serves task ' || l.task
            when not bool_or(l.queue = any (w.queues)) then 'of task ' || l.task || ' serves queue ' || l.queue
            when not bool_or(l.queue = any (w.queues) and l.tag = any (w.tags))
              then 'of task ' || l.task || ' in queue ' || l.queue || ' offers tag ' || l.tag
            else 'of task ' || l.task || ' in queue ' || l.queue || ' with tag ' || l.tag || ' has ' || substr(l.constraint_tag, 3)
          end
        from longshore.workers w where w.expires_at > now() and w.dead_at is null and l.task = any (w.tasks))
      when m.used >= m.capacity then 'all ' || m.capacity || ' slots of task ' || l.task || ' are taken'
      when n.used >= n.capacity
        then 'all ' || n.capacity || ' slots of task ' || l.task || ' for key ' || l.concurrency_key || ' are taken'
    end as reason
  from longshore.lanes l
  left join lateral (
    select i.capacity, (select sum(g.used) from longshore.slot_groups g where g.limit_id = i.id) as used
    from longshore.limits i where i.task = l.task and i.key = ''
  ) m on true
  left join lateral (
    select i.capacity, (select sum(g.used) from longshore.slot_groups g where g.limit_id = i.id) as used
    from longshore.limits i where i.task = l.task and i.key = l.concurrency_key and i.key <> ''
  ) n on true
) r
join longshore.jobs j on j.lane = r.id and j.state = 'ready'
where r.reason is not null;

comment on view longshore.job_status is 'Every job, finished or not. Quick by id and by group_id.';
comment on view longshore.group_status is 'Every group, with how many of its jobs are in each state. Quick by id.';
comment on view longshore.blocked is 'Jobs that have not started, and why. Quick by id and by group_id; use limit otherwise.';
