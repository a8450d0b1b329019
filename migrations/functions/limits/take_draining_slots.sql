-- The same for a limit that was lowered below what ran: all its groups are looked at together, so that nothing starts
-- while more runs than may. When no group holds more than it may any more, the limit is an ordinary one again.
create function longshore.take_draining_slots(p_limit int, p_need int) returns smallint[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_group longshore.slot_groups;
  v_slots smallint[] := '{}';
  v_left int;
  v_take int;
  v_era int := (select e.era from longshore.slot_groups e where e.limit_id = p_limit order by e.era desc limit 1);
begin
  -- All or nothing: somebody who holds one of them may be taking or freeing slots.
  if (select count(*) from (
      select from longshore.slot_groups g where g.limit_id = p_limit and g.era >= v_era order by g.number for update skip locked
    ) held) < /* guard: all-groups */ (select count(*) from longshore.slot_groups g where g.limit_id = p_limit and g.era >= v_era) /* end all-groups */
  then
    return v_slots;
  end if;
  select least(p_need, k.capacity - sum(g.used)) into v_left
  from longshore.limits k join longshore.slot_groups g on g.limit_id = k.id and g.era >= v_era
  where k.id = p_limit group by k.capacity;
  for v_group in
    select g.* from longshore.slot_groups g where g.limit_id = p_limit and g.era >= v_era and g.used < g.capacity order by g.number
  loop
    exit when v_left <= 0;
    v_take := least(v_group.capacity - v_group.used, v_left);
    update longshore.slot_groups g set used = g.used + v_take where g.limit_id = p_limit and g.era = v_group.era and g.number = v_group.number;
    v_slots := v_slots || array_fill(v_group.number, array[v_take]);
    v_left := v_left - v_take;
  end loop;
  update longshore.slot_groups g set is_draining = false
  where g.limit_id = p_limit and g.era >= v_era and not exists (
    select from longshore.slot_groups o where o.limit_id = p_limit and o.era >= v_era and o.used > o.capacity
  );
  return v_slots;
end
$$;
