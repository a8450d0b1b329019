-- The leader switches to the way through Redis or to direct mode. Returns whether that is a change.
-- public: relay
create function longshore.set_dispatch(p_dispatch text, p_holder text default null, p_secret bytea default null) returns boolean
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform longshore.need_leader(p_holder, p_secret);
  update longshore.settings s set dispatch = p_dispatch where s.dispatch <> p_dispatch;
  return found;
end
$$;
