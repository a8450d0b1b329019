-- Notify the processes that wait for one of these jobs: it has ended.
create function longshore.notify_job_waiters(p_ids uuid[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pg_notify('longshore.waiter_' || a.waiter, a.job_id::text)
  from longshore.awaited a where a.job_id = any (p_ids);
end
$$;
