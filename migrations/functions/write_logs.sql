-- Store lines and progress of runs of these jobs, and tell whoever follows one of them. Lines come with their age in milliseconds: their time is
-- that of the database, whatever clock a worker has. Lines that are there already are left alone: a reply may have been
-- lost. Waits only for moments, and not for the disk: a crash of Postgres may cost the last lines, jobs never wait for them.
create function longshore.write_logs(p_lines json, p_progress json, p_jobs uuid[]) returns void
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set lock_timeout = '250ms'
set jit = off
as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  perform set_config('synchronous_commit', 'off', true);
  insert into longshore.job_logs (job_id, lease_token, at, seq, day, attempt, level, message, data)
  select l.job, l.lease, w.at, l.seq, (w.at at time zone 'utc')::date, l.attempt, l.level, l.message, l.data
  from json_to_recordset(p_lines)
    as l(job uuid, lease bigint, seq int, age float8, attempt smallint, level text, message text, data jsonb)
  cross join lateral (select v_now - l.age * interval '1 millisecond' as at) w
  on conflict do nothing;
  -- In one order, so that two workers never wait for each other. A run whose lease is gone does not overwrite a later one.
  insert into longshore.job_progress as p (job_id, lease_token, at, done, total, day, attempt)
  select distinct on (n.job) n.job, n.lease, v_now, n.done, n.total, (v_now at time zone 'utc')::date, n.attempt
  from json_to_recordset(p_progress) as n(job uuid, lease bigint, done float8, total float8, attempt smallint)
  order by n.job, n.lease desc
  on conflict (job_id, day) do update
  set lease_token = excluded.lease_token, at = excluded.at, done = excluded.done, total = excluded.total,
    attempt = excluded.attempt
  where p.lease_token <= excluded.lease_token;
  perform pg_notify('longshore.waiter_' || a.waiter, a.job_id::text)
  from longshore.awaited a where a.wants_logs and a.job_id = any (p_jobs);
end
$$;
