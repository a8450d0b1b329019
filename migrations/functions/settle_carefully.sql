-- Settle successes of which some are locked, gone, cancelled or claimed anew. Locks what it can in a statement of its
-- own, keeps the exact (id, lease token) pairs, and answers for the others. Jobs whose dependents or workflow somebody holds
-- are left for later: they must not hold up the rest.
create function longshore.settle_carefully(p_worker int, p_ids uuid[], p_tokens bigint[], p_results jsonb)
returns table (id uuid, answer text, lane int, slot smallint, key_slot smallint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- The history was perhaps empty when it was last looked at.
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_given jsonb := jsonb_object(p_ids::text[], p_tokens::text[]);
  v_settled uuid[];
  v_lanes int[];
  v_slots smallint[];
  v_key_slots smallint[];
  v_linked uuid[];
  v_workflows bigint[];
  v_groups uuid[];
  v_children uuid[];
  v_free uuid[];
  v_free_workflows bigint[];
  v_blocked uuid[];
  v_ready uuid[];
  v_job longshore.jobs;
begin
  select coalesce(array_agg(j.id), '{}') into v_settled
  from (
    select j.id, j.lease_token from longshore.jobs j
    where j.id = any (p_ids) and j.worker_id = p_worker
    order by j.id
    for update skip locked
  ) j
  where j.lease_token = (v_given ->> j.id::text)::bigint;

  return query
  with missing as materialized (
    select g.id, g.token from unnest(p_ids, p_tokens) as g(id, token)
    where g.id <> all (v_settled)
  )
  select m.id, case when j.id is null then 'lost' else 'busy' end, null::int, null::smallint, null::smallint
  from missing m
  left join longshore.jobs j on j.id = m.id and j.worker_id = p_worker and j.lease_token = m.token
  -- The reply to an earlier call may have been lost: then this very run is in the history.
  where not exists (select from longshore.finished_jobs f where f.id = m.id and f.lease_token = m.token);

  -- Those that others may wait for, and which of them can tell those: all of it locked at once, and nobody waited for.
  v_linked := array(
    select j.id from longshore.jobs j
    where j.id = any (v_settled) and (j.group_id is not null or j.workflow is not null) order by j.id);
  if v_linked <> '{}' then
    v_children := array(
      select distinct e.child from unnest(v_linked) as p(id)
      cross join lateral (select e.child from longshore.edges e where e.parent = p.id offset 0) e
      cross join lateral (select from longshore.jobs j where j.id = e.child offset 0) j);
    select coalesce(array_agg(f.id), '{}') into v_free
    from (select j.id from longshore.jobs j where j.id = any (v_children) order by j.id for no key update skip locked) f;
    select coalesce(array_agg(f.id), '{}') into v_free_workflows
    from (
      select w.id from longshore.workflows w
      where w.id = any (array(select j.workflow from longshore.jobs j where j.id = any (v_linked) and j.workflow is not null))
      order by w.key for update skip locked
    ) f;
    v_blocked := array(
      select e.parent from unnest(v_children) as c(id)
      cross join lateral (select e.parent from longshore.edges e where e.child = c.id offset 0) e
      where c.id <> all (v_free) and e.parent = any (v_linked)
      union
      select j.id from longshore.jobs j join longshore.workflows w on w.id = j.workflow
      where j.id = any (v_linked) and j.workflow <> all (v_free_workflows));
    return query
    select b.id, 'busy'::text, null::int, null::smallint, null::smallint from unnest(v_blocked) as b(id);
    v_settled := array(select s.id from unnest(v_settled) as s(id) where s.id <> all (v_blocked));
  end if;

  begin
    with gone as (
      delete from longshore.jobs j
      -- What was cancelled takes its dependents with it: see below.
      where j.id = any (v_settled) and not (j.is_cancelled and (j.group_id is not null or j.workflow is not null))
      returning j.*
    ), kept as (
      insert into longshore.finished_jobs (id, score, lease_token, created_at, started_at, finished_at, lane, worker_id,
        day, state, attempts, max_attempts, rescues, payload, result, group_id, workflow, workflow_seq)
      select g.id, g.score, g.lease_token, g.created_at, g.started_at, now(), g.lane, g.worker_id,
        (now() at time zone 'utc')::date,
        (case when g.is_cancelled then 'cancelled' else 'succeeded' end)::longshore.job_state,
        g.attempts, g.max_attempts, g.rescues, g.payload, case when not g.is_cancelled then p_results -> g.id::text end,
        g.group_id, g.workflow, g.workflow_seq
      from gone g
      on conflict do nothing
    )
    select array_agg(g.lane) filter (where g.slot is not null or g.key_slot is not null),
      array_agg(g.slot) filter (where g.slot is not null or g.key_slot is not null),
      array_agg(g.key_slot) filter (where g.slot is not null or g.key_slot is not null),
      array_agg(g.id) filter (where g.group_id is not null or g.workflow is not null),
      array_agg(g.workflow) filter (where g.workflow is not null),
      array_agg(distinct g.group_id) filter (where g.group_id is not null)
    into v_lanes, v_slots, v_key_slots, v_linked, v_workflows, v_groups
    from gone g;
    if v_linked is not null then
      v_ready := longshore.pass_on(
        v_linked, array_fill('succeeded'::longshore.job_state, array[cardinality(v_linked)]), v_workflows);
    end if;
  exception when lock_not_available then
    -- The next of a workflow was held, or somebody was quicker.
    return query select s.id, 'busy'::text, null::int, null::smallint, null::smallint from unnest(v_settled) as s(id);
    return;
  end;
  perform longshore.tell_waiters(v_settled);
  return query
  select null::uuid, 'held'::text, h.* from unnest(v_lanes, v_slots, v_key_slots) as h(lane, slot, key_slot)
  union all
  select r.id, 'ready', null, null, null from unnest(v_ready) as r(id)
  union all
  select g.id, 'group', null, null, null from longshore.nearly_ended(v_groups) as g(id);
  for v_job in
    select j.* from longshore.jobs j where j.id = any (v_settled) and j.is_cancelled order by j.id
  loop
    return query
    select e.* from longshore.ended_linked(v_job, longshore.end_linked(v_job, 'cancelled')) e;
  end loop;
end
$$;
