-- Forget waits that have expired, and runs and workers that nobody writes log lines for any more.
create function longshore.forget_expired(p_holder text default null, p_secret bytea default null) returns void
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform longshore.need_leader(p_holder, p_secret);
  delete from longshore.awaited a where a.expires_at < now();
  delete from longshore.past_runs r where r.ended_at < now() - interval '1 day';
  delete from longshore.past_workers w where w.ended_at < now() - interval '1 day';
end
$$;
