-- No relay has kept Redis in step for a minute, and the leader has no Redis either: switch to direct mode and drop the outbox. A
-- relay that comes back begins anew from the jobs themselves. False: another process leads meanwhile, or the mode was direct before.
-- public: worker, relay
create function longshore.switch_to_direct(p_holder text, p_secret bytea default null) returns boolean
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
begin
  -- Locked until the commit: no other process takes the lease, and with it the outbox, in between.
  perform from longshore.leader l
  where l.holder = p_holder and longshore.fits_secret(l.secret, p_secret) /* guard: no-relay */ and l.rank < 2 /* end no-relay */
    and l.since <= clock_timestamp() - interval '1 minute'
  for update;
  if not found then
    return false;
  end if;
  update longshore.settings s set dispatch = 'direct' where s.dispatch = 'redis';
  if not found then
    return false;
  end if;
  delete from longshore.outbox;
  return true;
end
$$;
