-- For a person with psql: how jobs and groups stand, and what keeps the unfinished ones.

create view longshore.job_status as
select j.id, l.task, l.queue, j.state, j.group_id, w.key as workflow,
  (2047 - (j.score >> 42))::int as priority, to_timestamp((j.score & 4398046511103) / 1000.0) as run_at,
  j.created_at, j.started_at, null::timestamptz as finished_at, j.attempts, j.max_attempts, j.rescues, j.worker_id,
  j.error ->> 'message' as error
from longshore.jobs j
left join longshore.lanes l on l.id = j.lane
left join longshore.workflows w on w.id = j.workflow
union all
select f.id, l.task, l.queue, f.state, f.group_id, null,
  (2047 - (f.score >> 42))::int, to_timestamp((f.score & 4398046511103) / 1000.0),
  f.created_at, f.started_at, f.finished_at, f.attempts, f.max_attempts, f.rescues, f.worker_id, f.error ->> 'message'
from longshore.finished_jobs f
left join longshore.lanes l on l.id = f.lane;

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

-- Jobs that have not started, and why: the first of the reasons that holds. What is left out may start at any moment.
create view longshore.blocked as
select b.id, b.task, b.queue, b.state, b.group_id, b.reason
from (
  select j.id, l.task, l.queue, j.state, j.group_id,
    case
      when p.open > 0 then 'waits for ' || p.open || ' of ' || p.parents || ' jobs, among them ' || p.first
      when j.has_turn is false and w.halted_by is not null
        then 'workflow ' || w.key || ' was stopped by the failure of job ' || w.halted_by
      when j.has_turn is false then 'waits for its turn in workflow ' || coalesce(w.key, '?') || ', which job ' || coalesce(t.id::text, 'nobody') || ' has'
      when j.state = 'waiting' then 'waits for ' || j.pending || ', and nothing is open: longshore doctor --repair'
      when j.state = 'scheduled' then 'is due at ' || to_timestamp((j.score & 4398046511103) / 1000.0)
      when not exists (
        select from longshore.workers k
        where k.expires_at > now() and k.dead_at is null and l.task = any (k.tasks) and l.queue = any (k.queues)
          and l.tag = any (k.tags) and l.constraint_tag = any (k.constraint_tags)
      ) then 'no live worker serves task ' || l.task || ', queue ' || l.queue || ', tag ' || l.tag
        || case when l.constraint_tag <> 'c:' then ' and has ' || substr(l.constraint_tag, 3) else '' end
      when m.is_full then 'all ' || m.capacity || ' slots of task ' || l.task || ' are taken'
      when k.is_full then 'all ' || k.capacity || ' slots of task ' || l.task || ' for key ' || l.concurrency_key || ' are taken'
    end as reason
  from longshore.jobs j
  left join longshore.lanes l on l.id = j.lane
  left join longshore.workflows w on w.id = j.workflow
  left join lateral (
    select t.id from longshore.jobs t where t.workflow = j.workflow and t.has_turn and j.has_turn is false
  ) t on true
  left join lateral (
    select count(*) as parents, count(o.id) as open, min(o.id::text) as first
    from longshore.edges e left join longshore.jobs o on o.id = e.parent where e.child = j.id and j.state = 'waiting'
  ) p on true
  left join lateral (
    select n.capacity, (select sum(g.used) from longshore.slot_groups g where g.limit_id = n.id) >= n.capacity as is_full
    from longshore.limits n where n.task = l.task and n.key = ''
  ) m on true
  left join lateral (
    select n.capacity, (select sum(g.used) from longshore.slot_groups g where g.limit_id = n.id) >= n.capacity as is_full
    from longshore.limits n where n.task = l.task and n.key = l.concurrency_key and n.key <> ''
  ) k on true
  where j.state <> 'running'
) b
where b.reason is not null;
