-- Make the partitions of finished_jobs for jobs that end today or within p_days_ahead days, with the retention of the settings or a
-- shorter one. Returns how many were made.
-- public: worker, relay
create function longshore.prepare_history(
  p_days_ahead int default 14, p_holder text default null, p_secret bytea default null
)
returns int
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_ends date[];
begin
  perform longshore.need_leader(p_holder, p_secret);
  v_ends := longshore.days_ahead(p_days_ahead);
  return longshore.prepare_days('finished_jobs', array(
    select distinct longshore.kept_until(e.day, n) as day
    from longshore.settings s, generate_series(1, s.retention_days) n, unnest(v_ends) as e(day)
    order by day));
end
$$;
