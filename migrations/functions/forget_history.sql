-- The upkeep's drop_history: how much is kept is up to the settings, not to the caller.
create function longshore.forget_history() returns int
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  return (select longshore.drop_history(s.retention_days) from longshore.settings s);
end
$$;
