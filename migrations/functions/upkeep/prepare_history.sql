-- Make the partitions of finished_jobs for today and the days ahead. Returns how many were made.
create function longshore.prepare_history(p_days_ahead int, p_holder text default null, p_secret bytea default null)
returns int
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform longshore.need_leader(p_holder, p_secret);
  return longshore.prepare_days('finished_jobs', p_days_ahead);
end
$$;
