-- Move one job, whose row the caller has locked, to the history, and tell whoever waits for it. A row of an earlier life
-- of the same id may be there already: then the job ends without one.
create function longshore.finish_job(
  p_job longshore.jobs, p_state longshore.job_state, p_result jsonb default null, p_error jsonb default null
) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
  /* guard: not-left */ delete from longshore.jobs j where j.id = p_job.id; /* end not-left */
  /* guard: to-history */ insert into longshore.finished_jobs (id, score, lease_token, created_at, started_at, finished_at, lane, worker_id,
    day, state, attempts, max_attempts, rescues, payload, result, error,
    group_id, workflow, workflow_seq, enqueued_by)
  values (p_job.id, p_job.score, p_job.lease_token, p_job.created_at, p_job.started_at, now(), p_job.lane,
    p_job.worker_id, (now() at time zone 'utc')::date, p_state, p_job.attempts, p_job.max_attempts, p_job.rescues,
    p_job.payload, p_result, coalesce(p_error, p_job.error), p_job.group_id, p_job.workflow, p_job.workflow_seq,
    p_job.enqueued_by)
  on conflict do nothing; /* end to-history */
  perform longshore.notify_job_waiters(array[p_job.id]);
end
$$;
