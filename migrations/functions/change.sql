-- Change a job that has not started: {priority, runAt (ms since 1970) or delayMs, constraintTag}; what is not given stays.
-- Answers `changed`, `running` or `finished` (too late: nothing was changed) or `unknown`.
create function longshore.change(p_id uuid, p_change jsonb) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '1s'
as $$
declare
  v_job longshore.jobs;
  v_lane longshore.lanes;
  v_now_ms bigint;
  v_run_at_ms bigint;
  v_state longshore.job_state;
begin
  select * into v_job from longshore.jobs j where j.id = p_id for update;
  if not found then
    return case when exists (select from longshore.finished_jobs f where f.id = p_id) then 'finished' else 'unknown' end;
  end if;
  if v_job.state = 'running' then
    return 'running';
  end if;
  v_now_ms := floor(extract(epoch from clock_timestamp()) * 1000);
  v_run_at_ms := coalesce((p_change ->> 'runAt')::bigint, v_now_ms + (p_change ->> 'delayMs')::bigint,
    v_job.score & 4398046511103);
  v_job.score := longshore.score(
    coalesce((p_change ->> 'priority')::int, longshore.priority_of(v_job.score)), to_timestamp(v_run_at_ms / 1000.0));
  v_state := case
    when v_job.state = 'waiting' then 'waiting'
    when v_run_at_ms > v_now_ms then 'scheduled'
    else 'ready'
  end;
  if p_change ? 'constraintTag' then
    perform longshore.check_properties(longshore.constraint_keys(p_change ->> 'constraintTag'));
    select * into v_lane from longshore.lanes l where l.id = v_job.lane;
    v_job.lane := longshore.find_lane(
      v_lane.queue, v_lane.task, v_lane.tag, p_change ->> 'constraintTag', v_lane.concurrency_key);
  end if;
  update longshore.jobs j set score = v_job.score, lane = v_job.lane, state = v_state where j.id = p_id;
  if v_state = 'ready' then
    perform longshore.offer(v_job.lane, v_job.score, p_id, 1);
  elsif v_state = 'scheduled' and v_run_at_ms < v_now_ms + 300 then
    perform pg_notify('longshore.due', '');
  end if;
  return 'changed';
end
$$;
