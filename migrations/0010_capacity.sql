-- What a worker has room for and how it fares, as of its last beat; and whether somebody wants it to take no more jobs.

alter table longshore.workers
  add available_capacity int,
  add max_capacity int,
  add memory_usage real,
  add event_loop_lag_ms real,
  add completed bigint,
  add failed bigint,
  add drained_at timestamptz;

-- For a person with psql.
create view longshore.worker_status as
select w.id, w.name,
  case
    when w.dead_at is not null or w.expires_at <= now() then 'dead'
    when w.drained_at is not null then 'drained'
    else 'live'
  end as state,
  w.max_capacity - w.available_capacity as in_flight, w.available_capacity, w.max_capacity, w.memory_usage,
  w.event_loop_lag_ms, w.completed, w.failed, w.queues, w.tasks, w.tags, w.properties, w.started_at, w.drained_at,
  w.expires_at - w.lease_ms * interval '1 millisecond' as beat_at
from longshore.workers w;
comment on view longshore.worker_status is 'Every worker, with its capacity as of its last beat.';

-- As before, and: those whose workers are all drained.
create or replace view longshore.blocked as
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
      when not exists (
        select from longshore.workers w
        where w.expires_at > now() and w.dead_at is null and w.drained_at is null and l.task = any (w.tasks)
          and l.queue = any (w.queues) and l.tag = any (w.tags) and l.constraint_tag = any (w.constraint_tags)
      ) then 'every worker that may run it is drained: longshore resume'
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
