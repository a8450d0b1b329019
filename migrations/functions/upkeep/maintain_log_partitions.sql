-- The upkeep's keep_logs: how much is kept is up to the settings, not to the caller.
-- public: worker, relay
create function longshore.maintain_log_partitions(
  p_days_ahead int default 14, p_holder text default null, p_secret bytea default null
) returns void
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform longshore.need_leader(p_holder, p_secret);
  perform longshore.keep_logs(s.retention_days, p_days_ahead) from longshore.settings s;
end
$$;
