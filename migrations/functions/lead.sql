-- Take or renew the lease, by the database's clock. Whoever has a higher rank takes it from whoever has a lower one. Returns
-- the epoch, or null when somebody else leads.
create function longshore.lead(p_holder text, p_lease_ms int, p_rank int) returns bigint
language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_epoch bigint;
begin
  update longshore.leader l
  set epoch = l.epoch + case when l.holder is distinct from p_holder then 1 else 0 end,
    holder = p_holder, rank = p_rank, asleep = (l.asleep and l.holder = p_holder) is true, expires_at = now() + p_lease_ms * interval '1 millisecond'
  where l.holder = p_holder or l.expires_at < now() or l.rank < p_rank
  returning l.epoch into v_epoch;
  return v_epoch;
end
$$;
