-- The leader gives the lease back, so that another need not wait until it runs out.
-- public: worker, relay
create function longshore.resign(p_holder text, p_secret bytea) returns void
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  update longshore.leader l set expires_at = '-infinity'
  where l.holder = p_holder and longshore.fits_secret(l.secret, p_secret);
end
$$;
