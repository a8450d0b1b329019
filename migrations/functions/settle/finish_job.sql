-- End one job, whose row the caller has locked, and which therefore has not changed: move it to the history, and tell the processes
-- that wait for it.
create function longshore.finish_job(
  p_job longshore.jobs, p_state longshore.job_state, p_result jsonb default null, p_error jsonb default null
) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_tokens bigint[];
begin
  select m.tokens into v_tokens from longshore.move_to_history(array[p_job.id], p_state,
    case when p_result is not null then jsonb_build_object(p_job.id, p_result) end,
    case when p_error is not null then jsonb_build_object(p_job.id, p_error) end, p_attempts => p_job.attempts) m;
  if v_tokens is distinct from array[p_job.lease_token] then
    raise exception 'longshore: job % has changed while it was about to end as %', p_job.id, p_state;
  end if;
  perform longshore.notify_job_waiters(array[p_job.id]);
end
$$;
