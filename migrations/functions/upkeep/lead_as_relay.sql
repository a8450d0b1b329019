-- A relay takes or renews the lease: from a worker, and with Redis also from a relay without.
-- public: relay
create function longshore.lead_as_relay(p_holder text, p_lease_ms int, p_has_redis boolean, p_secret bytea) returns bigint
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
begin
  return longshore.lead(p_holder, p_lease_ms, case when p_has_redis then 2 else 1 end, p_secret);
end
$$;
