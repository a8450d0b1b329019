-- Whether a commit of an outbox row must notify the relay that leads.
-- public: relay
create function longshore.set_asleep(p_is_asleep boolean, p_holder text, p_secret bytea) returns void
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  update longshore.leader l set asleep = p_is_asleep
  where l.holder = p_holder and longshore.fits_secret(l.secret, p_secret);
end
$$;
