-- Take up to p_need slots of a limit: the numbers of their groups, one for each slot. Never waits: groups that others
-- hold are passed over, so that claims made at once take different ones, and no more groups are held than needed.
create function longshore.take_slots(p_limit int, p_need int) returns smallint[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_group record;
  v_slots smallint[] := '{}';
  v_left int := p_need;
  v_take int;
  v_numbers smallint[] := '{}';
  v_rows tid[] := '{}';
  v_taken int[] := '{}';
  v_groups int;
  v_era int := (select e.era from longshore.slot_groups e where e.limit_id = p_limit order by e.era desc limit 1);
begin
  loop
    -- As many groups as are needed if those are empty; the next turn takes more where they were not.
    select ceil(v_left / greatest(max(g.capacity), 1)::numeric) into v_groups
    from longshore.slot_groups g where g.limit_id = p_limit and g.era >= v_era;
    v_take := 0;
    for v_group in
      select g.ctid, g.number, g.capacity - g.used as free from longshore.slot_groups g
      where g.limit_id = p_limit and g.era >= v_era and g.used < g.capacity and /* guard: draining */ not g.is_draining /* end draining */ and g.number <> all (v_numbers)
      order by g.number
      limit v_groups
      /* guard: group-lock */ for update skip locked /* end group-lock */
    loop
      v_take := least(v_group.free, v_left);
      v_numbers := v_numbers || v_group.number;
      v_rows := v_rows || v_group.ctid;
      v_taken := v_taken || v_take;
      v_slots := v_slots || array_fill(v_group.number, array[v_take]);
      v_left := v_left - v_take;
    end loop;
    exit when v_left = 0 or v_take = 0;
  end loop;
  /* point: chosen */
  if v_numbers <> '{}' then
    update longshore.slot_groups g set used = /* guard: count */ g.used + t.taken /* end count */
    from unnest(v_rows, v_taken) as t(row, taken) where g.ctid = t.row;
  elsif exists (select from longshore.slot_groups g where g.limit_id = p_limit and g.era >= v_era and g.is_draining) then
    return longshore.take_draining_slots(p_limit, p_need);
  end if;
  return v_slots;
end
$$;
