-- A worker takes or renews the lease: the lowest rank, which every relay takes it from.
-- public: worker
create function longshore.lead_as_worker(p_holder text, p_lease_ms int, p_secret bytea) returns bigint
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  return longshore.lead(p_holder, p_lease_ms, 0, p_secret);
end
$$;
