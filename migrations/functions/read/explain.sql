-- What keeps a job from running, where it runs, or how it ended: the facts of it, all from one snapshot; null when there is no
-- such job. Of what may be many at most 20 are named, beside their count. src/postgres/explain-job.ts makes sentences of it.
--   select jsonb_pretty(longshore.explain('0198c0de-…'))
-- A producer is told of its own jobs only: others' are counted and not named, and of another's job it is told nothing.
-- The jobs that hold the slots of a full limit are found by reading the table of jobs: an index on running jobs would cost
-- every claim and every settle.
-- public: producer, reader
create function longshore.explain(p_id uuid) returns jsonb
language plpgsql stable
security definer set search_path = pg_catalog, pg_temp
set jit = off
set timezone = 'UTC'
as $$
declare
  c_most constant int := 20;
  -- Jobs ahead of this one are counted up to here.
  c_most_ahead constant int := 1000;
  v_role oid := longshore.acting_role();
  -- The roles that may list the table of jobs: readers, relays, the owner.
  v_sees_all boolean := has_column_privilege(v_role, 'longshore.jobs', 'id', 'select');
  v_job longshore.jobs;
  v_lane longshore.lanes;
  v_facts jsonb;
begin
  select * into v_job from longshore.jobs j where j.id = p_id;
  if not found then
    return longshore.explain_end(p_id, v_role, v_sees_all);
  elsif not (v_sees_all or longshore.is_own(v_role, v_job.enqueued_by)) then
    return null;
  end if;
  select * into v_lane from longshore.lanes l where l.id = v_job.lane;
  v_facts := jsonb_build_object(
    'id', v_job.id, 'state', v_job.state, 'task', v_lane.task, 'queue', v_lane.queue, 'tag', v_lane.tag,
    'constraintTag', v_lane.constraint_tag, 'runAt', longshore.run_at_of(v_job.score),
    'isDue', longshore.run_at_of(v_job.score) <= clock_timestamp(), 'attempts', v_job.attempts,
    'maxAttempts', v_job.max_attempts, 'error', longshore.error_text(v_job.error),
    'hasUpkeep', exists (select from longshore.leader d where d.expires_at > now()));

  if v_job.state = 'running' then
    return v_facts || jsonb_build_object('run', (
      select jsonb_build_object('workerId', v_job.worker_id, 'workerName', max(w.name), 'since', v_job.started_at,
        'isLive', coalesce(bool_or(w.expires_at > now() and w.dead_at is null), false), 'isCancelled', v_job.is_cancelled,
        'waitsAlone', coalesce(bool_or(w.waits_alone = v_job.id), false), 'others', max(w.max_capacity - w.available_capacity - 1))
      from longshore.workers w where w.id = v_job.worker_id));
  end if;

  if v_job.state = 'waiting' then
    v_facts := v_facts || jsonb_build_object('pending', v_job.pending, 'dependencies', (
      select jsonb_build_object('count', count(*), 'jobs', coalesce(jsonb_agg(
        jsonb_build_object('id', o.id, 'task', o.task, 'state', o.state) order by o.no)
        filter (where o.no <= c_most and (v_sees_all or longshore.is_own(v_role, o.enqueued_by))), '[]'))
      from (
        select p.id, l.task, p.state, p.enqueued_by, row_number() over (order by p.id) as no
        from longshore.edges e
        cross join lateral (select p.id, p.state, p.lane, p.enqueued_by from longshore.jobs p where p.id = e.parent offset 0) p
        left join longshore.lanes l on l.id = p.lane
        where e.child = p_id
      ) o));
  end if;
  if not v_job.has_turn then
    v_facts := v_facts || jsonb_build_object('workflow', (
      select jsonb_build_object('key', w.key,
        'holder', (
          select jsonb_build_object('id', t.id, 'task', l.task, 'state', t.state)
          from longshore.jobs t left join longshore.lanes l on l.id = t.lane
          where t.workflow = w.id and t.has_turn and (v_sees_all or longshore.is_own(v_role, t.enqueued_by))),
        'isHeld', exists (select from longshore.jobs t where t.workflow = w.id and t.has_turn),
        'ahead', (
          select count(*) from (
            select from longshore.jobs a
            where a.workflow = w.id and a.workflow_seq < v_job.workflow_seq and not a.has_turn limit c_most_ahead
          ) a),
        'isHalted', w.halted_by is not null,
        'haltedBy', case when w.halted_by is not null then (
          select jsonb_build_object('id', w.halted_by, 'task', max(l.task), 'error', max(longshore.error_text(f.error)))
          from longshore.finished_jobs f left join longshore.lanes l on l.id = f.lane
          where f.id = w.halted_by having v_sees_all or bool_and(longshore.is_own(v_role, f.enqueued_by))) end)
      from longshore.workflows w where w.id = v_job.workflow));
  end if;

  -- `closest`: the workers that serve the task and lack least of what the job asks for. `having`: how many of those have
  -- each thing of it.
  v_facts := v_facts || jsonb_build_object('workers', (
    with live as materialized (
      select w.id, w.name, w.properties, w.constraint_tags, w.drained_at, w.stuck_handlers, w.stuck_since, m.worker_id is not null as is_eligible,
        v_lane.task = any (w.tasks) as has_task, v_lane.queue = any (w.queues) as has_queue, v_lane.tag = any (w.tags) as has_tag, (
          select count(*) from unnest(string_to_array(substr(v_lane.constraint_tag, 3), ',')) as c(pair)
          where 'c:' || c.pair <> all (w.constraint_tags)) as lacks
      from longshore.workers w left join longshore.worker_lanes m on m.worker_id = w.id and m.lane = v_job.lane
      where w.expires_at > now() and w.dead_at is null
    ), eligible as materialized (
      select l.id, l.name, l.stuck_handlers, l.stuck_since, row_number() over (order by l.id) as no
      from live l where l.is_eligible and l.drained_at is null
    )
    select jsonb_build_object(
      'live', (select count(*) from live), 'serving', (select count(*) from live l where l.has_task),
      'count', count(*), 'some', coalesce(
        jsonb_agg(jsonb_build_object('id', e.id, 'name', e.name) order by e.no) filter (where e.no <= c_most), '[]'),
      'stuck', case when v_job.rescues >= 2 then jsonb_build_object('rescues', v_job.rescues, 'workers', coalesce(
        jsonb_agg(jsonb_build_object('id', e.id, 'name', e.name, 'handlers', e.stuck_handlers, 'since', e.stuck_since) order by e.no)
        filter (where e.stuck_handlers > 0), '[]')) end,
      'drained', (
        select coalesce(jsonb_agg(jsonb_build_object('id', l.id, 'name', l.name) order by l.id), '[]')
        from live l where l.is_eligible and l.drained_at is not null),
      'closest', (
        select jsonb_build_object('id', l.id, 'name', l.name, 'hasQueue', l.has_queue, 'hasTag', l.has_tag,
          'properties', l.properties)
        from live l where l.has_task
        order by (not l.has_queue)::int + (not l.has_tag)::int + l.lacks, l.id limit 1),
      'having', (
        select jsonb_build_object('queue', count(*) filter (where l.has_queue), 'tag', count(*) filter (where l.has_tag),
          'keys', (
            select coalesce(jsonb_object_agg(split_part(c.pair, '=', 1), (
              select count(*) from live o where o.has_task and 'c:' || c.pair = any (o.constraint_tags))), '{}')
            from unnest(string_to_array(substr(v_lane.constraint_tag, 3), ',')) as c(pair)))
        from live l where l.has_task))
    from eligible e));

  if v_job.state = 'ready' then
    v_facts := v_facts || jsonb_build_object(
      'ahead', (
        select count(*) from (
          select from longshore.jobs a
          where a.lane = v_job.lane and a.state = 'ready' and (a.score, a.id) < (v_job.score, v_job.id) limit c_most_ahead
        ) a),
      -- The task's own first.
      'limits', (
        select coalesce(jsonb_agg(jsonb_build_object('key', k.key, 'capacity', k.capacity, 'used', k.used, 'holders', (
          select coalesce(jsonb_agg(jsonb_build_object('id', h.id, 'workerId', h.worker_id)), '[]')
          from (
            select r.id, r.worker_id from longshore.jobs r join longshore.lanes l on l.id = r.lane
            where r.state = 'running' and l.task = k.task and (v_sees_all or longshore.is_own(v_role, r.enqueued_by))
              and case when k.key = '' then r.slot is not null else r.key_slot is not null and l.concurrency_key = k.key end
            limit c_most
          ) h)) order by k.key), '[]')
        from (
          select n.task, n.key, n.capacity,
            (select coalesce(sum(g.used), 0) from longshore.slot_groups g where g.limit_id = n.id) as used
          from longshore.limits n where n.task = v_lane.task and n.key in ('', v_lane.concurrency_key)
        ) k
        where k.used >= k.capacity),
      'noted', case when (select s.dispatch from longshore.settings s) = 'redis' then (
        select jsonb_build_object('since', min(b.created_at), 'hasRelay', exists (
          select from longshore.leader d where d.expires_at > now() and d.rank >= 2))
        from longshore.outbox b where p_id = any (b.jobs) having count(*) > 0) end);
  end if;
  return v_facts;
end
$$;
