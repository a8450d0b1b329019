-- Ring for what waits under limits that were opened, as far as there is room left.
create function longshore.ring_limits(p_limits int[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
  if p_limits = '{}' or not exists (select from longshore.workers w where w.listening) then
    return;
  end if;
  perform longshore.ring(l.id, k.room)
  from (
    -- Without a capacity there is no limit any more.
    select k.id, k.task, k.key, coalesce(k.capacity - coalesce(sum(g.used), 0), 1000) as room
    from longshore.limits k left join longshore.slot_groups g on g.limit_id = k.id
    where k.id = any (p_limits) group by k.id
  ) k
  join longshore.lanes l on l.task = k.task and l.concurrency_key = k.key
  where k.room > 0 and (
    exists (select from longshore.jobs j where j.lane = l.id and j.state = 'ready')
    or exists (select from longshore.lane_heads h where h.parent = l.id and h.closed_by is null));
end
$$;
