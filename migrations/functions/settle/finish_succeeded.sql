-- Move jobs that have succeeded, and whose rows the caller has locked, to the history; what was cancelled meanwhile ends as
-- that. Returns the slots they held, with their lanes, and their workflows and groups.
create function longshore.finish_succeeded(
  p_ids uuid[], p_results jsonb,
  out lanes int[], out slots smallint[], out key_slots smallint[], out workflows bigint[], out groups uuid[]
)
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  with gone as (
    delete from longshore.jobs j where j.id = any (p_ids) returning j.*
  ) /* guard: to-history */, kept as (
    insert into longshore.finished_jobs (id, score, lease_token, created_at, started_at, finished_at, lane, worker_id,
      day, state, attempts, max_attempts, rescues, payload, result, group_id, workflow, workflow_seq, enqueued_by)
    select g.id, g.score, g.lease_token, g.created_at, g.started_at, now(), g.lane, g.worker_id,
      (now() at time zone 'utc')::date,
      (/* guard: cancelled-ends */ case when g.is_cancelled then 'cancelled' else 'succeeded' end /* end cancelled-ends */)::longshore.job_state,
      g.attempts, g.max_attempts, g.rescues, g.payload, case when not g.is_cancelled then p_results -> g.id::text end,
      g.group_id, g.workflow, g.workflow_seq, g.enqueued_by
    from gone g
    on conflict do nothing
  ) /* end to-history */
  select array_agg(g.lane) filter (where g.slot is not null or g.key_slot is not null),
    array_agg(g.slot) filter (where g.slot is not null or g.key_slot is not null),
    array_agg(g.key_slot) filter (where g.slot is not null or g.key_slot is not null),
    coalesce(array_agg(g.workflow) filter (where g.workflow is not null), '{}'),
    coalesce(array_agg(distinct g.group_id) filter (where g.group_id is not null), '{}')
  from gone g
$$;
