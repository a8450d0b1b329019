-- Make the partitions of finished_jobs for today and the days ahead. Returns how many were made.
create function longshore.prepare_history(p_days_ahead int) returns int
language sql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
  select longshore.prepare_days('finished_jobs', p_days_ahead)
$$;
