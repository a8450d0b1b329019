-- Move jobs to the history: every end of a job goes through this statement, which deletes the job and keeps it as finished. The
-- caller holds their rows, or gives p_worker: then only jobs that this worker runs and that were not cancelled are moved.
-- p_state: how they end; a run that was cancelled ends as cancelled. p_results, p_errors: by id, where there are any; without a new
-- error a job that did not succeed keeps its last one. p_attempts: how many it has used, where its row says otherwise.
-- A row of an earlier job with the same id may be in the history already: then the job ends without one; with p_worker the call
-- fails with unique_violation.
-- Returns those that were moved (ids ascending, with their lease tokens), the slots they held, with their lanes, and of those that
-- others may wait for: their ids, workflows and groups.
create function longshore.move_to_history(
  p_ids uuid[], p_state longshore.job_state, p_results jsonb default null, p_errors jsonb default null,
  p_worker int default null, p_attempts smallint default null,
  out ids uuid[], out tokens bigint[], out lanes int[], out slots smallint[], out key_slots smallint[],
  out linked uuid[], out workflows bigint[], out groups uuid[]
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_until date;
  v_past uuid[] := '{}';
begin
  -- By the clock, not by the time at which the transaction began: nothing is added to a day that is over, see forget_page.
  select longshore.kept_until((clock_timestamp() at time zone 'utc')::date, s.retention_days) into v_until from longshore.settings s;
  -- A statement of its own: within the next one every call would lock and open each partition, also where it asks none of them. None of these
  -- can be added meanwhile, because the caller holds the jobs.
  if p_worker is null then
    v_past := array(select f.id from longshore.finished_jobs f where f.id = any (p_ids) and f.keep_until = v_until);
  end if;
  with gone as (
    /* guard: not-left */ delete from longshore.jobs j
    where j.id = any (p_ids)
      and (p_worker is null or
        /* guard: own-worker */ j.worker_id = p_worker and /* end own-worker */
        /* guard: not-cancelled */ not j.is_cancelled and /* end not-cancelled */ true)
    returning j.id, j.score, j.lease_token, j.created_at, j.started_at, j.lane, j.worker_id, j.attempts, j.max_attempts, j.rescues,
      j.is_cancelled, j.payload, j.error, j.group_id, j.workflow, j.workflow_seq, j.slot, j.key_slot, j.enqueued_by /* end not-left */
  ) /* guard: to-history */, kept as (
    insert into longshore.finished_jobs (id, score, lease_token, created_at, started_at, finished_at, lane, worker_id, keep_until,
      state, attempts, max_attempts, rescues, payload, result, error, group_id, workflow, workflow_seq, enqueued_by)
    select g.id, g.score, g.lease_token, g.created_at, g.started_at, now(), g.lane, g.worker_id, v_until,
      case when /* guard: cancelled-ends */ g.is_cancelled /* end cancelled-ends */ then 'cancelled' else p_state end,
      coalesce(p_attempts, g.attempts), g.max_attempts, g.rescues, g.payload,
      case when p_results is not null and not g.is_cancelled then p_results -> g.id::text end,
      case when p_state <> 'succeeded' then coalesce(p_errors -> g.id::text, g.error) end,
      g.group_id, g.workflow, g.workflow_seq, g.enqueued_by
    from gone g
    -- Not `on conflict do nothing`, which writes 48 bytes of WAL more for each job.
    where g.id <> all (v_past)
  ) /* end to-history */
  select array_agg(g.id order by g.id), array_agg(g.lease_token order by g.id),
    array_agg(g.lane) filter (where g.slot is not null or g.key_slot is not null),
    array_agg(g.slot) filter (where g.slot is not null or g.key_slot is not null),
    array_agg(g.key_slot) filter (where g.slot is not null or g.key_slot is not null),
    array_agg(g.id) filter (where g.group_id is not null or g.workflow is not null),
    array_agg(g.workflow) filter (where g.workflow is not null),
    array_agg(distinct g.group_id) filter (where g.group_id is not null)
  into ids, tokens, lanes, slots, key_slots, linked, workflows, groups
  from gone g;
end
$$;
