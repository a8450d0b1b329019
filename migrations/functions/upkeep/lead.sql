-- Take or renew the lease, by the database's clock. A higher rank takes it from a lower one. Returns the epoch, or null when another
-- leads. A holder is known by its secret: a process that only knows its name cannot renew in its place.
create function longshore.lead(p_holder text, p_lease_ms int, p_rank int, p_secret bytea default null) returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_epoch bigint;
  v_secret bytea := longshore.check_secret(p_secret);
begin
  if p_holder is null or p_lease_ms is null or p_lease_ms not between 100 and 60000 then
    raise exception 'longshore: a lease of % ms for "%" cannot be had: name the holder, and ask for 100 ms to one minute', p_lease_ms, p_holder
      using errcode = 'invalid_parameter_value';
  end if;
  update longshore.leader l
  set epoch = l.epoch
      /* guard: next-epoch */ + case when (l.holder, l.secret) is distinct from (p_holder, v_secret) then 1 else 0 end /* end next-epoch */,
    holder = p_holder, secret = v_secret, rank = p_rank,
    asleep = l.asleep and (l.holder, l.secret) is not distinct from (p_holder, v_secret),
    since = case when (l.holder, l.secret) is not distinct from (p_holder, v_secret) and l.expires_at >= now() then l.since else now() end,
    expires_at = now() + p_lease_ms * interval '1 millisecond'
  /* guard: free-lease */ where /* guard: own-secret */ (l.holder, l.secret) is not distinct from (p_holder, v_secret) /* end own-secret */
    or l.expires_at < now() or l.rank < p_rank /* end free-lease */
  returning l.epoch into v_epoch;
  return v_epoch;
end
$$;
