-- Take a running job, whose row the caller has locked, back from its worker: ready at once and at its old place (p_delay_ms
-- null), or due again so many milliseconds from now. Attempts, rescues and error are taken from p_job and p_error; freeing
-- its slots and noting the change are up to the caller. Returns whether it is ready.
create function longshore.send_back(p_job longshore.jobs, p_delay_ms bigint, p_error jsonb) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_score bigint := p_job.score;
  v_state longshore.job_state := longshore.state_by_time(coalesce(p_delay_ms, 0));
begin
  if p_delay_ms is not null then
    v_score := longshore.score(
      longshore.priority_of(p_job.score), clock_timestamp() + p_delay_ms * interval '1 millisecond');
  end if;
  update longshore.jobs j
  set state = v_state, score = v_score, attempts = p_job.attempts, rescues = p_job.rescues, error = p_error,
    worker_id = null, started_at = null, slot = null, key_slot = null
  where j.id = p_job.id;
  -- It may have log lines under way.
  insert into longshore.past_runs (job_id, lease_token, worker_id) values (p_job.id, p_job.lease_token, p_job.worker_id)
  on conflict do nothing;
  if v_state = 'ready' then
    /* guard: wake-worker */ perform longshore.announce_ready(p_job.lane, v_score, p_job.id, 1); /* end wake-worker */
  elsif longshore.is_due_soon(p_delay_ms) then
    perform pg_notify('longshore.due', '');
  end if;
  return v_state = 'ready';
end
$$;
