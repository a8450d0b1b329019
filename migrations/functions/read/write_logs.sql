-- Store lines and progress of runs of this worker, and notify processes that follow one of the jobs. Lines come with their age in
-- milliseconds: their time is that of the database, whatever clock a worker has. Lines that are there already are left alone: a reply may
-- have been lost. Waits only for moments, and not for the disk: a crash of Postgres may cost the last lines, jobs never wait for them.
-- A worker writes for its present and past runs, also when it has died or left meanwhile. Returns how many lines were of other runs.
-- public: worker
create function longshore.write_logs(p_lines json, p_progress json, p_worker int, p_secret bytea default null) returns int
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set lock_timeout = '250ms'
set jit = off
set enable_seqscan = off
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_jobs uuid[];
  v_leases bigint[];
begin
  if longshore.need_worker(p_worker, p_secret) = 0 and not exists (
    select from longshore.past_workers w where w.id = p_worker and longshore.fits_secret(w.secret, p_secret)
  ) then
    return json_array_length(p_lines);
  end if;
  perform set_config('synchronous_commit', 'off', true);
  select array_agg(r.job), array_agg(r.lease) into v_jobs, v_leases
  from (
    select l.job, l.lease from json_to_recordset(p_lines) as l(job uuid, lease bigint)
    union
    select n.job, n.lease from json_to_recordset(p_progress) as n(job uuid, lease bigint)
  ) r
  where exists (
      select from longshore.jobs j
      where j.id = r.job and j.lease_token = r.lease /* guard: own-worker */ and j.worker_id = p_worker /* end own-worker */ offset 0)
    or exists (
      select from longshore.past_runs p where p.job_id = r.job and p.lease_token = r.lease and p.worker_id = p_worker offset 0)
    or exists (
      select from longshore.finished_jobs f
      where f.id = r.job and f.lease_token = r.lease and f.worker_id = p_worker offset 0);
  insert into longshore.job_logs (job_id, lease_token, at, seq, day, attempt, level, message, data)
  select l.job, l.lease, w.at, l.seq, (w.at at time zone 'utc')::date, l.attempt, l.level, l.message, l.data
  from json_to_recordset(p_lines)
    as l(job uuid, lease bigint, seq int, age float8, attempt smallint, level text, message text, data jsonb)
  join unnest(v_jobs, v_leases) as o(job, lease) on o.job = l.job and o.lease = l.lease
  cross join lateral (select v_now - l.age * interval '1 millisecond' as at) w
  on conflict do nothing;
  -- In one order, so that two workers never wait for each other. A run whose lease is gone does not overwrite a later one.
  insert into longshore.job_progress as p (job_id, lease_token, at, done, total, day, attempt)
  select distinct on (n.job) n.job, n.lease, v_now, n.done, n.total, (v_now at time zone 'utc')::date, n.attempt
  from json_to_recordset(p_progress) as n(job uuid, lease bigint, done float8, total float8, attempt smallint)
  join unnest(v_jobs, v_leases) as o(job, lease) on o.job = n.job and o.lease = n.lease
  order by n.job, n.lease desc
  on conflict (job_id, day) do update
  set lease_token = excluded.lease_token, at = excluded.at, done = excluded.done, total = excluded.total,
    attempt = excluded.attempt
  /* guard: latest-run */ where p.lease_token <= excluded.lease_token /* end latest-run */;
  perform pg_notify('longshore.waiter_' || a.waiter, a.job_id::text)
  from longshore.awaited a where a.wants_logs and a.job_id = any (v_jobs);
  return (
    select count(*) from json_to_recordset(p_lines) as l(job uuid, lease bigint)
    where not exists (
      select from unnest(v_jobs, v_leases) as o(job, lease) where o.job = l.job and o.lease = l.lease));
end
$$;
