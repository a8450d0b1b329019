-- The upkeep's keep_logs: how much is kept is up to the settings, not to the caller.
-- public: worker, relay
create function longshore.maintain_log_partitions(
  p_days_ahead int default 14, p_holder text default null, p_secret bytea default null, p_wait_ms int default null,
  out is_done boolean, out held_by text, out behind_days int
)
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform longshore.need_leader(p_holder, p_secret);
  if p_wait_ms not between 1 and 1000 then
    raise exception 'longshore: a wait of % ms for a lock that stops others is refused: 1 to 1000 are possible', p_wait_ms
      using errcode = 'invalid_parameter_value';
  end if;
  select k.is_done, k.held_by, k.behind_days into is_done, held_by, behind_days
  from longshore.settings s, longshore.keep_logs(s.retention_days, p_days_ahead, p_wait_ms) k;
end
$$;
