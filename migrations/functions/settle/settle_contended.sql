-- Settle successes of which some are locked, gone, cancelled or claimed anew. Locks what it can in a statement of its
-- own, keeps the exact (id, lease token) pairs, and answers for the others. Jobs whose dependents or workflow are locked
-- are left for later: they must not delay the rest.
create function longshore.settle_contended(p_worker int, p_ids uuid[], p_tokens bigint[], p_results jsonb)
returns table (id uuid, answer text, lane int, slot smallint, key_slot smallint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- As in pass_on.
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_given jsonb := jsonb_object(p_ids::text[], p_tokens::text[]);
  v_settled uuid[];
  v_plain uuid[];
  v_linked uuid[];
  v_free uuid[];
  v_ended record;
  v_ready uuid[];
  v_job longshore.jobs;
begin
  select coalesce(array_agg(j.id), '{}'),
    coalesce(array_agg(j.id) filter (where j.group_id is null and j.workflow is null), '{}'),
    coalesce(array_agg(j.id) filter (where (j.group_id is not null or j.workflow is not null) and not j.is_cancelled), '{}')
  into v_settled, v_plain, v_linked
  from (
    select j.id, j.lease_token, j.group_id, j.workflow, j.is_cancelled from longshore.jobs j
    where j.id = any (p_ids) /* guard: own-worker */ and j.worker_id = p_worker /* end own-worker */
    order by j.id
    for update skip locked
  ) j
  /* guard: own-token */ where j.lease_token = (v_given ->> j.id::text)::bigint /* end own-token */;

  return query
  with missing as materialized (
    select g.id, g.token from unnest(p_ids, p_tokens) as g(id, token)
    where g.id <> all (v_settled)
  )
  select m.id, case when j.id is null then 'lost' else 'busy' end, null::int, null::smallint, null::smallint
  from missing m
  left join lateral (
    select j.id from longshore.jobs j where j.id = m.id and j.worker_id = p_worker and j.lease_token = m.token offset 0
  ) j on true
  -- The reply to an earlier call may have been lost: then this very run is in the history.
  where not exists (select from longshore.finished_jobs f where f.id = m.id and f.lease_token = m.token offset 0);

  select * into v_ended from longshore.move_to_history(v_plain, 'succeeded', p_results);
  perform longshore.notify_job_waiters(v_plain);
  return query
  select null::uuid, 'held'::text, h.* from unnest(v_ended.lanes, v_ended.slots, v_ended.key_slots) as h(lane, slot, key_slot)
  /* point: tell-slots */;
  if v_plain = v_settled then
    return;
  end if;

  -- Together, however many have the same dependent: ended one by one, each would find all earlier versions of its row.
  begin
    v_free := longshore.free_to_end(v_linked);
    return query
    select l.id, 'busy'::text, null::int, null::smallint, null::smallint
    from unnest(v_linked) as l(id) where l.id <> all (v_free);
    select * into v_ended from longshore.move_to_history(v_free, 'succeeded', p_results);
    v_ready := longshore.pass_on(
      v_free, array_fill('succeeded'::longshore.job_state, array[cardinality(v_free)]), v_ended.workflows);
    perform longshore.notify_job_waiters(v_free);
    v_linked := '{}';
    return query
    select null::uuid, 'held'::text, h.* from unnest(v_ended.lanes, v_ended.slots, v_ended.key_slots) as h(lane, slot, key_slot)
    union all
    select r.id, 'ready', null, null, null from unnest(v_ready) as r(id)
    union all
    select g.id, 'group', null, null, null from longshore.nearly_ended(v_ended.groups) as g(id);
  exception when lock_not_available then
    -- The next job of a workflow is locked.
    v_linked := v_free;
  end;
  -- Cancelled jobs, and others that must be looked at one by one.
  for v_job in
    select j.* from longshore.jobs j
    where j.id = any (v_settled) and (j.is_cancelled or j.id = any (v_linked)) order by j.id
  loop
    v_ready := longshore.end_linked(
      v_job, case when v_job.is_cancelled then 'cancelled' else 'succeeded' end::longshore.job_state,
      case when not v_job.is_cancelled then p_results -> v_job.id::text end);
    return query select e.* from longshore.settle_answer(v_job, v_ready) e;
  end loop;
end
$$;
