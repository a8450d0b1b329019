-- Slots of these limits were freed, or their capacity grew: open the lanes that had to wait, and ring for them, as far as
-- there is room left. After the slots themselves are freed: a claim that closes a limit holds all of its groups.
create function longshore.reopen(p_limits int[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_limit longshore.limits;
  v_room bigint;
  v_lane int;
begin
  -- One at a time: while a lowered limit drains, two that free a slot each at once would both see the other's as used, and
  -- neither would open.
  for v_limit in
    select k.* from longshore.limits k where k.id = any (p_limits) and k.is_full order by k.id for no key update
  loop
    select v_limit.capacity - coalesce(sum(g.used), 0) into v_room
    from longshore.slot_groups g where g.limit_id = v_limit.id;
    continue when v_room <= 0;
    v_room := coalesce(v_room, 1000); -- no limit any more
    update longshore.limits k set is_full = false where k.id = v_limit.id;
    for v_lane in
      update longshore.lane_heads h set closed_by = null where h.closed_by = v_limit.id returning h.lane
    loop
      perform longshore.ring(v_lane, v_room);
    end loop;
    if v_limit.key = '' then
      perform longshore.ring(l.id, v_room)
      from longshore.lanes l
      where l.task = v_limit.task and l.concurrency_key = '' and (
        exists (select from longshore.jobs j where j.lane = l.id and j.state = 'ready')
        or exists (select from longshore.lane_heads h where h.parent = l.id and h.closed_by is null));
    end if;
  end loop;
end
$$;
