-- End runs. p_ids (ascending) with p_tokens are the jobs that succeeded; p_results maps ids to results where there
-- are any; p_others lists what ended otherwise: {id, token, outcome: failed | retry | released, error, delayMs}.
-- Each write is fenced by (worker, lease token). Never waits for a lock. Returns only what was not settled:
-- `busy` (somebody holds the row right now: try again) and `lost` (the lease is gone: nothing was changed).
create function longshore.settle(
  p_worker int, p_ids uuid[], p_tokens bigint[], p_results jsonb, p_others jsonb
) returns table (id uuid, answer text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
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
    -- Locked in a statement of its own, so that what follows reads rows nobody else can change.
    select coalesce(array_agg(j.id), '{}'), coalesce(array_agg(j.lease_token), '{}') into v_ids, v_tokens
    from (
      select j.id, j.lease_token from longshore.jobs j
      where j.id = any (p_ids) and j.worker_id = p_worker
      order by j.id
      for update skip locked
    ) j;
    if v_ids <> p_ids or v_tokens <> p_tokens then
      -- Some are locked, gone or claimed anew: keep the exact pairs.
      select coalesce(array_agg(l.id), '{}') into v_ids
      from unnest(v_ids, v_tokens) as l(id, token)
      where (l.id, l.token) in (select * from unnest(p_ids, p_tokens));
      return query
      select g.id, case when j.id is null then 'lost' else 'busy' end
      from unnest(p_ids, p_tokens) as g(id, token)
      left join longshore.jobs j on j.id = g.id and j.worker_id = p_worker and j.lease_token = g.token
      where g.id <> all (v_ids)
        -- The reply to an earlier call may have been lost: then this very run is in the history.
        and not exists (select from longshore.finished_jobs f where f.id = g.id and f.lease_token = g.token);
    end if;
    with gone as (
      delete from longshore.jobs j where j.id = any (v_ids) returning j.*
    )
    insert into longshore.finished_jobs (id, score, lease_token, created_at, started_at, finished_at, lane, worker_id,
      day, state, attempts, max_attempts, payload, result)
    select g.id, g.score, g.lease_token, g.created_at, g.started_at, now(), g.lane, g.worker_id,
      (now() at time zone 'utc')::date, 'succeeded', g.attempts, g.max_attempts, g.payload, p_results -> g.id::text
    from gone g
    on conflict do nothing;
    perform longshore.tell_waiters(v_ids);
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
