-- The upkeep's keep_logs: how much is kept is up to the settings, not to the caller.
create function longshore.tend_logs(p_days_ahead int) returns void
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform longshore.keep_logs(p_days_ahead, s.retention_days) from longshore.settings s;
end
$$;
