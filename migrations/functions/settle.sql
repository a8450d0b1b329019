-- End runs. p_ids (ascending) with p_tokens are the jobs that succeeded; p_results maps ids to results where there
-- are any; p_others lists what ended otherwise: {id, token, outcome: failed | retry | released, error, delayMs}.
-- Each write is fenced by (worker, lease token). Waits for nobody longer than its lock_timeout. Returns only what was
-- not settled: `busy` (somebody holds the row: try again, alone) and `lost` (the lease is gone: nothing was changed).
create function longshore.settle(
  p_worker int, p_ids uuid[], p_tokens bigint[], p_results jsonb, p_others jsonb
) returns table (id uuid, answer text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '50ms'
as $$
#variable_conflict use_column
declare
  v_ids uuid[];
  v_tokens bigint[];
  v_given record;
  v_job longshore.jobs;
  v_run_at timestamptz;
  v_state longshore.job_state;
begin
  if cardinality(p_ids) > 0 then
    begin
      -- The common case in one statement: all of them are ours and nobody holds them. Whoever does (a claim that
      -- read an older snapshot) lets go within milliseconds, or is left to the careful way.
      with gone as (
        delete from longshore.jobs j where j.id = any (p_ids) and j.worker_id = p_worker returning j.*
      ), kept as (
        insert into longshore.finished_jobs (id, score, lease_token, created_at, started_at, finished_at, lane,
          worker_id, day, state, attempts, max_attempts, payload, result)
        select g.id, g.score, g.lease_token, g.created_at, g.started_at, now(), g.lane,
          g.worker_id, (now() at time zone 'utc')::date, 'succeeded', g.attempts, g.max_attempts, g.payload,
          case when p_results is not null then p_results -> g.id::text end
        from gone g
        returning id, lease_token
      )
      select array_agg(k.id order by k.id), array_agg(k.lease_token order by k.id) into v_ids, v_tokens from kept k;
      if v_ids is distinct from p_ids or v_tokens is distinct from p_tokens then
        raise lock_not_available;
      end if;
    exception when lock_not_available or unique_violation then
      v_ids := null;
    end;
    if v_ids is null then
      return query select c.id, c.answer from longshore.settle_carefully(p_worker, p_ids, p_tokens, p_results) c;
    else
      perform longshore.tell_waiters(v_ids);
    end if;
  end if;

  if p_others is null then
    return;
  end if;
  for v_given in
    select o.* from jsonb_to_recordset(p_others) as o(id uuid, token bigint, outcome text, error jsonb, "delayMs" bigint)
    order by o.id
  loop
    select * into v_job from longshore.jobs j
    where j.id = v_given.id and j.worker_id = p_worker and j.lease_token = v_given.token
    for update skip locked;
    if not found then
      return query
      select v_given.id, case when exists (
        select from longshore.jobs j
        where j.id = v_given.id and j.worker_id = p_worker and j.lease_token = v_given.token
      ) then 'busy' else 'lost' end
      where not exists (
        select from longshore.finished_jobs f where f.id = v_given.id and f.lease_token = v_given.token
      );
      continue;
    end if;
    if v_given.outcome = 'failed' or (v_given.outcome = 'retry' and v_job.attempts >= v_job.max_attempts) then
      delete from longshore.jobs j where j.id = v_given.id;
      insert into longshore.finished_jobs (id, score, lease_token, created_at, started_at, finished_at, lane, worker_id,
        day, state, attempts, max_attempts, payload, error)
      values (v_job.id, v_job.score, v_job.lease_token, v_job.created_at, v_job.started_at, now(), v_job.lane,
        v_job.worker_id, (now() at time zone 'utc')::date, 'failed', v_job.attempts, v_job.max_attempts,
        v_job.payload, v_given.error)
      on conflict do nothing;
      perform longshore.tell_waiters(array[v_job.id]);
    elsif v_given.outcome = 'retry' then
      v_run_at := clock_timestamp() + greatest(v_given."delayMs", 0) * interval '1 millisecond';
      v_state := case when v_given."delayMs" > 0 then 'scheduled' else 'ready' end;
      update longshore.jobs j
      set state = v_state, score = longshore.score(longshore.priority_of(v_job.score), v_run_at),
        worker_id = null, started_at = null, error = v_given.error
      where j.id = v_given.id;
      if v_state = 'ready' then
        perform longshore.ring(v_job.lane, 1);
      elsif v_given."delayMs" < 300 then
        perform pg_notify('longshore.due', '');
      end if;
    elsif v_given.outcome = 'released' then
      update longshore.jobs j
      set state = 'ready', attempts = j.attempts - 1, worker_id = null, started_at = null
      where j.id = v_given.id;
      perform longshore.ring(v_job.lane, 1);
    else
      raise exception 'longshore: unknown outcome "%"', v_given.outcome using errcode = 'invalid_parameter_value';
    end if;
  end loop;
end
$$;
