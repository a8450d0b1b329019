-- Slots of these limits were freed, or their capacity grew: open the lanes that had to wait, where there is room. After the
-- slots themselves are freed: a claim that closes a limit holds all of its groups, so whoever frees one sees that it is
-- closed. Returns the limits that were opened.
create function longshore.open_limits(p_limits int[]) returns int[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_limit int;
  v_opened int[] := '{}';
begin
  -- One at a time: while a lowered limit drains, two that free a slot each at once would both see the other's as used, and
  -- neither would open.
  for v_limit in
    select k.id from longshore.limits k where k.id = any (p_limits) and k.is_full order by k.id /* guard: one-at-a-time */ for no key update /* end one-at-a-time */
  loop
    continue when (
      select k.capacity - coalesce(sum(g.used), 0)
      from longshore.limits k left join longshore.slot_groups g on g.limit_id = k.id
        and g.era >= (select e.era from longshore.slot_groups e where e.limit_id = v_limit order by e.era desc limit 1)
      where k.id = v_limit group by k.capacity
    ) <= 0;
    update longshore.limits k set is_full = false where k.id = v_limit; /* point: opened */
    /* guard: open-lanes */ update longshore.lane_heads h set closed_by = null where h.closed_by = v_limit; /* end open-lanes */
    v_opened := v_opened || v_limit;
  end loop;
  /* guard: tell-relay */ perform longshore.note_changes(p_limits => v_opened) where v_opened <> '{}'; /* end tell-relay */
  return v_opened;
end
$$;
