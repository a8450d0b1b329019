-- Forget waits that have expired, waits for limits of workers that are gone, and runs and workers whose last log lines have come: a page of each. Waits for no row.
-- p_after_…: where the last call ended among the waits of `awaited`; `after_…` is for the next one, null at the end. `has_more`: another call has something to do.
-- public: worker, relay
create function longshore.forget_expired(
  p_holder text default null, p_secret bytea default null, p_after_job uuid default null, p_after_waiter text default null,
  out after_job uuid, out after_waiter text, out has_more boolean
)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set jit = off
-- A page of each table, however many rows there are.
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  c_page constant int := 5000;
  v_rows tid[];
  v_runs int;
begin
  perform longshore.need_leader(p_holder, p_secret);
  select a.job_id, a.waiter into after_job, after_waiter
  from longshore.awaited a
  where (a.job_id, a.waiter) > (coalesce(p_after_job, '00000000-0000-0000-0000-000000000000'), coalesce(p_after_waiter, ''))
  order by a.job_id, a.waiter offset c_page - 1 limit 1;
  v_rows := array(
    select a.ctid from longshore.awaited a
    where (a.job_id, a.waiter) > (coalesce(p_after_job, '00000000-0000-0000-0000-000000000000'), coalesce(p_after_waiter, ''))
      and (a.job_id, a.waiter) <= (coalesce(after_job, 'ffffffff-ffff-ffff-ffff-ffffffffffff'), coalesce(after_waiter, ''))
      and a.expires_at < now()
    for update skip locked);
  delete from longshore.awaited a where a.ctid = any (v_rows);

  v_rows := array(
    select r.ctid from longshore.past_runs r where r.ended_at < now() - interval '1 day'
    order by r.ended_at limit c_page for update skip locked);
  delete from longshore.past_runs r where r.ctid = any (v_rows);
  v_runs := cardinality(v_rows);

  -- Of these there are no more than workers have started in a day, and lanes that workers wait for.
  delete from longshore.past_workers w where w.ended_at < now() - interval '1 day';
  delete from longshore.limit_waiters w where not exists (select from longshore.workers o where o.id = w.worker_id offset 0);
  has_more := after_job is not null or v_runs = c_page;
end
$$;
