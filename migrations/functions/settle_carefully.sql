-- Settle successes of which some are locked, gone, cancelled or claimed anew. Locks what it can in a statement of its
-- own, keeps the exact (id, lease token) pairs, and answers for the others. Jobs that others wait for are ended one by one:
-- whoever holds one of those must not hold up the rest.
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
  v_job longshore.jobs;
  v_ready uuid[];
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

  with gone as (
    delete from longshore.jobs j
    where j.id = any (v_settled) and j.group_id is null and j.workflow is null
    returning j.*
  ), kept as (
    insert into longshore.finished_jobs (id, score, lease_token, created_at, started_at, finished_at, lane, worker_id,
      day, state, attempts, max_attempts, rescues, payload, result)
    select g.id, g.score, g.lease_token, g.created_at, g.started_at, now(), g.lane, g.worker_id,
      (now() at time zone 'utc')::date,
      (case when g.is_cancelled then 'cancelled' else 'succeeded' end)::longshore.job_state,
      g.attempts, g.max_attempts, g.rescues, g.payload, case when not g.is_cancelled then p_results -> g.id::text end
    from gone g
    on conflict do nothing
  )
  select array_agg(g.lane), array_agg(g.slot), array_agg(g.key_slot) into v_lanes, v_slots, v_key_slots
  from gone g where g.slot is not null or g.key_slot is not null;
  perform longshore.tell_waiters(v_settled);
  for v_job in
    select j.* from longshore.jobs j
    where j.id = any (v_settled) and (j.group_id is not null or j.workflow is not null) order by j.id
  loop
    v_ready := case when v_job.is_cancelled then longshore.end_linked(v_job, 'cancelled')
      else longshore.end_linked(v_job, 'succeeded', p_results -> v_job.id::text) end;
    return query
    select e.* from longshore.ended_linked(v_job, v_ready) e;
  end loop;
  return query
  select null::uuid, 'held'::text, h.* from unnest(v_lanes, v_slots, v_key_slots) as h(lane, slot, key_slot);
end
$$;
