-- Whether this holder, proved by its secret, is the last to have taken the lease.
create function longshore.is_leader(p_holder text, p_secret bytea) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return exists (
    select from longshore.leader l where l.holder = p_holder and longshore.fits_secret(l.secret, p_secret));
end
$$;
