-- Change a job that has not started: {priority, runAt (ms since 1970) or delayMs, constraintTag}; what is not given stays.
-- Waits at most a second for the lock of the row.
-- Answers `changed`, `running` or `finished` (too late: nothing was changed) or `unknown` (also for another role's job).
-- public: producer
create function longshore.change(p_id uuid, p_change jsonb) returns text
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '1s'
as $$
declare
  v_role oid := longshore.acting_role();
  v_job longshore.jobs;
  v_lane longshore.lanes;
  v_now_ms bigint;
  v_run_at_ms bigint;
  v_state longshore.job_state;
  v_priority int := longshore.option_number(p_change, 'priority', 0, 2047);
  v_delay_ms bigint := floor(longshore.option_number(p_change, 'delayMs', 0, 315360000000, false));
  v_given_ms bigint := floor(longshore.option_number(p_change, 'runAt', 0, 4398046511103, false));
  v_constraint_tag text := longshore.option_text(p_change, 'constraintTag', 500);
begin
  perform longshore.check_options(p_change, '{priority,runAt,delayMs,constraintTag}');
  if v_given_ms is not null and v_delay_ms is not null then
    raise exception 'longshore: give delayMs or runAt, not both' using errcode = 'invalid_parameter_value';
  end if;
  select * into v_job from longshore.jobs j
  where j.id = p_id and longshore.is_own(v_role, j.enqueued_by) /* guard: job-lock */ for update /* end job-lock */;
  if not found then
    return case when exists (
      select from longshore.finished_jobs f where f.id = p_id and longshore.is_own(v_role, f.enqueued_by)) then 'finished' else 'unknown' end;
  end if;
  /* point: job-held */
  /* guard: not-running */ if v_job.state = 'running' then
    return 'running';
  end if; /* end not-running */
  v_now_ms := floor(extract(epoch from clock_timestamp()) * 1000);
  v_run_at_ms := coalesce(v_given_ms, v_now_ms + v_delay_ms, longshore.run_at_ms_of(v_job.score));
  v_job.score := longshore.score_ms(coalesce(v_priority, longshore.priority_of(v_job.score)), v_run_at_ms);
  v_state := case when v_job.state = 'waiting' then 'waiting' else longshore.state_by_time(v_run_at_ms - v_now_ms) end;
  if v_constraint_tag is not null then
    perform longshore.check_properties(longshore.constraint_keys(v_constraint_tag));
    select * into v_lane from longshore.lanes l where l.id = v_job.lane;
    begin
      v_job.lane := longshore.find_lane(
        v_lane.queue, v_lane.task, v_lane.tag, v_constraint_tag, v_lane.concurrency_key);
    exception when check_violation then
      raise exception 'longshore: "%" is not a constraint tag', left(v_constraint_tag, 200)
        using errcode = 'LS001', hint = 'Make one with longshore.constraint_tag(''{"gpu": "a100"}'').';
    end;
  end if;
  update longshore.jobs j set score = v_job.score, lane = v_job.lane, state = v_state where j.id = p_id;
  /* guard: tell-relay */ perform longshore.note_changes(array[p_id]) where 'ready' in (v_job.state, v_state); /* end tell-relay */
  if v_state = 'ready' then
    /* guard: wake-worker */ perform longshore.announce_ready(v_job.lane, v_job.score, p_id, 1); /* end wake-worker */
  elsif v_state = 'scheduled' and longshore.is_due_soon(v_run_at_ms - v_now_ms) then
    perform pg_notify('longshore.due', '');
  end if;
  return 'changed';
exception when lock_not_available then
  perform longshore.refuse_locked(p_id);
end
$$;
