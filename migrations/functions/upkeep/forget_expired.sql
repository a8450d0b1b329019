-- Forget waits that have expired, waits for limits of workers that are gone, and runs and workers whose last log lines have come.
-- public: worker, relay
create function longshore.forget_expired(p_holder text default null, p_secret bytea default null) returns void
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform longshore.need_leader(p_holder, p_secret);
  delete from longshore.awaited a where a.expires_at < now();
  delete from longshore.past_runs r where r.ended_at < now() - interval '1 day';
  delete from longshore.limit_waiters w where not exists (select from longshore.workers o where o.id = w.worker_id);
  delete from longshore.past_workers w where w.ended_at < now() - interval '1 day';
end
$$;
