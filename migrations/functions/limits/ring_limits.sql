-- Ring for what waits under limits that were opened, as far as there is room left.
create function longshore.ring_limits(p_limits int[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
-- A few lanes and jobs, each by its key, however many there are.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  v_limit record;
begin
  if p_limits = '{}' or not exists (select from longshore.workers w where w.listening) then
    return;
  end if;
  for v_limit in
    -- Without a capacity there is no limit any more.
    select k.task, k.key, coalesce(k.capacity - (
      select coalesce(sum(g.used), 0) from longshore.slot_groups g where g.limit_id = k.id
    ), 1000) as room
    from longshore.limits k where k.id = any (p_limits)
  loop
    continue when v_limit.room <= 0;
    if v_limit.key = '' then
      perform longshore.ring(l.id, v_limit.room)
      from longshore.lanes l
      where l.task = v_limit.task and l.concurrency_key = '' and (
        exists (select from longshore.jobs j where j.lane = l.id and j.state = 'ready' offset 0)
        or exists (select from longshore.lane_heads h where h.parent = l.id and h.closed_by is null offset 0));
    else
      perform longshore.ring(l.id, v_limit.room)
      from longshore.lanes l
      where l.task = v_limit.task and l.concurrency_key = v_limit.key and l.concurrency_key <> ''
        and exists (select from longshore.jobs j where j.lane = l.id and j.state = 'ready' offset 0);
    end if;
  end loop;
end
$$;
