-- The upkeep's drop_history.
-- public: worker, relay
create function longshore.forget_history(p_holder text default null, p_secret bytea default null) returns int
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform longshore.need_leader(p_holder, p_secret);
  return longshore.drop_history();
end
$$;
